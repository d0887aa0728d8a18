/* tc_load_view: Materialize, hand-off, and the look at what arrived.
 * The result is kept as it came, in one arena; its columns are checked before the first pointer is made from them. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/map.h"
#include "base/memory.h"
#include "client.h"
#include "dtype_name.h"
#include "handoff.h"
#include "load_stream.h"
#include "report_json.h"
#include "variant.h"

typedef Tensorcast__Daemon__V1__LoadResult load_result;

struct tc_load {
    struct arena arena;
    const load_result *result; /* in the arena */
    const char *const *names;
    struct layout layout;
    struct handoff handoff;
    uint64_t *file_bytes;       /* of a load of files */
    struct name_index *by_name; /* to callers a load is const; its index is built at the first look-up */
};

struct name_index {
    pthread_mutex_t lock; /* while it is built */
    bool is_built;
    struct map map;
};

/* --- memory ------------------------------------------------------------------------------------------------------ */

/* What is asked, on the device that was opened. The answer stays in the load's arena. */
static int ask_load(struct tc_client *client, struct load_question *question, const struct wait *wait, struct tc_load *load,
                    struct load_stream *stream, struct error *error)
{
    if (load->handoff.cuda)
        question->device = cuda_memory_uuid(load->handoff.cuda);
    int failed = load_stream_ask(client, question, wait, &load->arena, stream, error);
    load->result = stream->result;
    return failed;
}

static int receive(struct tc_client *client, const struct wait *wait, struct tc_load *load, struct error *error)
{
    const load_result *result = load->result;
    const char *path = client_handoff(client, result->handoff_socket, wait, &load->arena, error);
    if (!path)
        return -1;
    if (!load_stream_of_files(result))
        return handoff_receive(path, result->handoff_token.data, wait, load->handoff.cuda, &load->handoff, error);
    load->file_bytes = arena_array(&load->arena, result->n_files + 1, sizeof *load->file_bytes);
    for (size_t i = 0; i < result->n_files; i++)
        load->file_bytes[i] = result->files[i]->bytes;
    if (!result->n_files) {
        handoff_receive_nothing(&load->handoff);
        return 0;
    }
    return handoff_receive_files(path, result->handoff_token.data, wait, load->file_bytes, result->n_files, &load->handoff,
                                 error);
}

static int materialize(struct tc_client *client, const char *artifact, const struct tc_view *view,
                       const struct tc_options *options, const struct wait *wait, struct tc_load *load, struct error *error)
{
    struct load_stream stream = {.options = options};
    struct load_question question = {.artifact = artifact, .view = view, .options = options, .device = ""};
    if (options && cuda_memory_is_meant(options->device) && cuda_memory_open(options->device, &load->handoff.cuda, error))
        return -1;
    if (ask_load(client, &question, wait, load, &stream, error))
        return load_stream_how_far(&stream, error);
    if (receive(client, wait, load, error))
        return -1;
    return load_stream_done(&stream, load->result->report->view_bytes, error);
}

/* Whatever happens, the daemon has let go of the memory in the end. */
static int fill_memory(struct tc_client *client, const char *artifact, const struct tc_view *view,
                       const struct tc_options *options, const struct wait *wait, struct tc_load *load, struct error *error)
{
    struct load_stream stream = {.options = options};
    struct region region = {.lease = -1};
    struct load_question question = {
        .artifact = artifact, .view = view, .options = options, .device = "", .region = &region};
    struct handoff_region wire;
    struct error held;
    int memory_fd;
    if (!options || !cuda_memory_is_meant(options->device))
        return fail(error, ERROR_INVALID_ARGUMENT, "NO_DEVICE", "the options have to name the GPU whose memory is filled");
    if (cuda_memory_open(options->device, &load->handoff.cuda, error) ||
        cuda_memory_lend(load->handoff.cuda, load->handoff.data, load->handoff.bytes, &wire, &memory_fd, error))
        return -1;
    const char *socket = region_socket(client, wait, &load->arena, error);
    int failed = socket ? region_offer(socket, &wire, memory_fd, wait, &region, error) : -1;
    if (memory_fd >= 0)
        close(memory_fd);
    if (failed)
        return -1;
    failed = ask_load(client, &question, wait, load, &stream, error);
    if (region_end(&region, &held)) {
        *error = held;
        return -1;
    }
    return failed ? load_stream_how_far(&stream, error) : load_stream_done(&stream, load->result->report->view_bytes, error);
}

/* --- a load ------------------------------------------------------------------------------------------------------ */

static int build_layout(struct tc_load *load, size_t n_tensors, struct error *error)
{
    const load_result *result = load->result;
    if (load_stream_of_files(result))
        return layout_build_files(result->layout, n_tensors, load->file_bytes, result->n_files, &load->arena, &load->layout,
                                  error);
    return layout_build(result->layout, n_tensors, load->handoff.bytes, &load->arena, &load->layout, error);
}

/* data NULL: into memory of the daemon's. */
static struct tc_load *load_view(struct tc_client *client, const char *artifact, const struct tc_view *view,
                                 const struct tc_options *options, const void *data, uint64_t bytes, struct tc_error *error)
{
    struct error cause;
    const struct wait wait = client_wait(options);
    struct tc_load *load = memory_alloc(sizeof *load);
    arena_init(&load->arena, 0);
    load->by_name = arena_alloc(&load->arena, sizeof *load->by_name);
    pthread_mutex_init(&load->by_name->lock, NULL);
    load->handoff = (struct handoff){.data = data, .bytes = bytes, .lease = -1};
    if ((data ? fill_memory : materialize)(client, artifact, view, options, &wait, load, &cause) ||
        build_layout(load, view ? view->n_items : load->result->layout->n_names, &cause)) {
        tc_load_release(load);
        variant_locate(options ? options->variant : NULL, &cause);
        client_fail(error, &cause);
        return NULL;
    }
    load->names = load->result->layout->names;
    if (view) { /* the daemon did not repeat them */
        const char **names = arena_array(&load->arena, view->n_items + 1, sizeof *names);
        for (size_t i = 0; i < view->n_items; i++)
            names[i] = arena_text(&load->arena, view->items[i].name, strlen(view->items[i].name));
        load->names = names;
    }
    return load;
}

struct tc_load *tc_load_view(struct tc_client *client, const char *artifact, const struct tc_view *view,
                             const struct tc_options *options, struct tc_error *error)
{
    return load_view(client, artifact, view, options, NULL, 0, error);
}

struct tc_load *tc_load_into(struct tc_client *client, const char *artifact, const struct tc_view *view,
                             const struct tc_options *options, void *memory, uint64_t bytes, struct tc_error *error)
{
    struct error cause;
    if (memory)
        return load_view(client, artifact, view, options, memory, bytes, error);
    fail(&cause, ERROR_INVALID_ARGUMENT, "NO_MEMORY", "there is no memory to be filled");
    client_fail(error, &cause);
    return NULL;
}

void tc_load_release(struct tc_load *load)
{
    if (!load)
        return;
    handoff_release(&load->handoff);
    if (load->by_name->is_built)
        map_fini(&load->by_name->map);
    pthread_mutex_destroy(&load->by_name->lock);
    arena_fini(&load->arena);
    free(load);
}

size_t tc_load_n_tensors(const struct tc_load *load)
{
    return load->layout.n_tensors;
}

size_t tc_load_n_files(const struct tc_load *load)
{
    return load->handoff.n_files;
}

const void *tc_load_file(const struct tc_load *load, size_t file, const char **name, uint64_t *bytes)
{
    *name = load->result->files[file]->name;
    *bytes = load->handoff.files[file].bytes;
    return load->handoff.files[file].data;
}

size_t tc_load_tensor_file(const struct tc_load *load, size_t index)
{
    return load->result->layout->file_indexes[index];
}

static const void *tensor_data(const struct tc_load *load, size_t index)
{
    const Tensorcast__Daemon__V1__Layout *columns = load->result->layout;
    const void *start = load->handoff.data;
    if (load_stream_of_files(load->result)) {
        if (!columns->sizes[index]) /* it is nowhere */
            return start;
        start = load->handoff.files[columns->file_indexes[index]].data;
    }
    return (const char *)start + columns->offsets[index];
}

void tc_load_tensor(const struct tc_load *load, size_t index, struct tc_tensor *tensor)
{
    const Tensorcast__Daemon__V1__Layout *columns = load->result->layout;
    size_t first = load->layout.first_dim[index];
    uint64_t bits;
    *tensor = (struct tc_tensor){.name = load->names[index],
                                 .dtype = dtype_name_of((int)columns->dtypes[index], &bits),
                                 .data = tensor_data(load, index),
                                 .shape = columns->dims + first,
                                 .strides = load->layout.strides + first,
                                 .rank = columns->ranks[index],
                                 .bytes = columns->sizes[index],
                                 .offset = columns->offsets[index]};
}

static const struct map *index_names(const struct tc_load *load)
{
    struct name_index *index = load->by_name;
    pthread_mutex_lock(&index->lock);
    if (!index->is_built) {
        map_init(&index->map, load->layout.n_tensors);
        for (size_t i = 0; i < load->layout.n_tensors; i++)
            map_add(&index->map, load->names[i], strlen(load->names[i]), (uint32_t)i);
        index->is_built = true;
    }
    pthread_mutex_unlock(&index->lock);
    return &index->map;
}

bool tc_load_find(const struct tc_load *load, const char *name, struct tc_tensor *tensor)
{
    uint32_t index = map_find(index_names(load), name, strlen(name));
    if (index == MAP_NONE)
        return false;
    tc_load_tensor(load, index, tensor);
    return true;
}

const void *tc_load_memory(const struct tc_load *load, uint64_t *bytes)
{
    *bytes = load->handoff.bytes;
    return load->handoff.data;
}

const char *tc_load_device(const struct tc_load *load)
{
    return load->handoff.cuda ? cuda_memory_uuid(load->handoff.cuda) : "";
}

int tc_load_read(const struct tc_load *load, uint64_t offset, uint64_t bytes, void *to, struct tc_error *error)
{
    const struct handoff *handoff = &load->handoff;
    struct error cause;
    int failed = 0;
    if (handoff->cuda)
        failed = cuda_memory_read(handoff->cuda, offset, bytes, to, &cause);
    else if (offset > handoff->bytes || bytes > handoff->bytes - offset)
        failed = fail(&cause, ERROR_INVALID_ARGUMENT, "OUTSIDE_MEMORY",
                      "%llu bytes at %llu are outside the load's memory of %llu bytes", (unsigned long long)bytes,
                      (unsigned long long)offset, (unsigned long long)handoff->bytes);
    else
        memcpy(to, (const char *)handoff->data + offset, bytes);
    if (failed)
        client_fail(error, &cause);
    return failed;
}

/* The load's memory where this process can look at it; `copy` is to be freed. NULL: it cannot be read. */
static const char *host_view(const struct tc_load *load, void **copy)
{
    struct tc_error ignored;
    *copy = NULL;
    if (!load->handoff.cuda)
        return load->handoff.data;
    *copy = malloc(load->handoff.bytes);
    return *copy && tc_load_read(load, 0, load->handoff.bytes, *copy, &ignored) == 0 ? *copy : NULL;
}

const Tensorcast__Daemon__V1__LoadReport *client_load_report(const struct tc_load *load)
{
    return load->result->report;
}

/* What there is to tell of a tensor in a file: its name, and strides where it is not packed. */
static void tell_file(const struct tc_load *load, size_t index, const struct tc_tensor *tensor,
                      struct report_json_tensor *told)
{
    const Tensorcast__Daemon__V1__Layout *columns = load->result->layout;
    uint64_t bits;
    dtype_name_of((int)columns->dtypes[index], &bits);
    told->data = told->data ? tensor->data : NULL;
    if (!tensor->bytes)
        return;
    told->file = load->result->files[columns->file_indexes[index]]->name;
    if (bits % 8 == 0)
        told->strides = columns->strides + load->layout.first_dim[index];
}

struct report_json_tensor *client_load_tensors(const struct tc_load *load, const char *memory)
{
    struct report_json_tensor *tensors = memory_alloc_array(load->layout.n_tensors + 1, sizeof *tensors);
    for (size_t i = 0; i < load->layout.n_tensors; i++) {
        struct tc_tensor tensor;
        tc_load_tensor(load, i, &tensor);
        tensors[i] = (struct report_json_tensor){.name = tensor.name,
                                                 .name_length = strlen(tensor.name),
                                                 .dtype = tensor.dtype,
                                                 .shape = tensor.shape,
                                                 .rank = tensor.rank,
                                                 .offset = tensor.offset,
                                                 .bytes = tensor.bytes,
                                                 .data = memory ? memory + tensor.offset : NULL};
        if (load_stream_of_files(load->result))
            tell_file(load, i, &tensor, &tensors[i]);
    }
    return tensors;
}

char *tc_load_report_json(const struct tc_load *load, bool with_digests)
{
    void *copy = NULL;
    struct report_json_tensor *tensors = client_load_tensors(load, with_digests ? host_view(load, &copy) : NULL);
    char *json = report_json(load->result->report, tensors, load->layout.n_tensors, with_digests);
    free(tensors);
    free(copy);
    return json;
}
