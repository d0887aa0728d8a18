/* A source on disk has a twin in the process of each mount that its files are on. A link of one FUSE mount may lead to
 * another; the process refuses to go there and says where to, and one for both is asked instead. */
#include "source/disk/source_forward.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/copy.h"
#include "base/loop.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "base/shared_memory.h"
#include "base/text.h"
#include "source/disk/filesystem.h"
#include "source/disk/mount_connection.h"
#include "source/disk/mounts.h"

enum {
    MAX_MOUNTS = 8, /* that links connect */
    ENTRY_BYTES = 32,
    BUFFERED_PIECE_BYTES = 256 << 10,
    WORTH_MAPPING_BYTES = 128 << 10, /* below, mapping and unmapping cost what a copy does */
    GLANCE_SECONDS = 10,
};
static const uint64_t SECOND_NS = 1000000000;
static const uint64_t PATIENCE_NS = 60 * SECOND_NS; /* of a request that nobody cancels, unless it is a read */

struct source_forward { /* a twin */
    struct source_forward *next;
    struct mount_process *process;
    uint64_t number;
    bool is_single_file;
};

static struct mount_wait wait_of(const struct source_disk *disk)
{
    const struct cancel *cancel = disk->base.cancel;
    return (struct mount_wait){.cancel = cancel,
                               .stop = disk->stop,
                               .deadline_ns = cancel ? 0 : clock_now_ns() + PATIENCE_NS,
                               .uid = disk->base.uid};
}

static int fail_too_long(const char *text, struct error *error)
{
    char name[TEXT_NAME_CHARS];
    return fail(error, ERROR_INVALID_ARGUMENT, "PATH_TOO_LONG", "%s: the path is too long",
                text_escape(text, strlen(text), name));
}

/* Adds one text to those of the request. */
static int put_text(struct mount_connection *connection, struct mount_request *request, const char *text,
                    struct error *error)
{
    size_t bytes = strlen(text) + 1;
    if (bytes > MOUNT_MEMORY_BYTES - request->text_bytes)
        return fail_too_long(text, error);
    memcpy(mount_connection_memory(connection) + request->text_bytes, text, bytes);
    request->text_bytes += (uint32_t)bytes;
    return 0;
}

/* --- twins -------------------------------------------------------------------------------------------------------- */

static int open_twin(const struct source_disk *disk, struct source_forward *twin, struct error *error)
{
    const struct mount_wait wait = wait_of(disk);
    struct mount_request request = {.op = MOUNT_OPEN, .source = twin->number, .is_confined = disk->confined};
    struct mount_reply reply;
    struct mount_connection *connection = mount_connection_take(twin->process, &wait, error);
    int failed = connection ? put_text(connection, &request, disk->path, error) : -1;
    for (size_t i = 0; !failed && i < disk->roots.n_roots; i++) {
        const char *root = disk->roots.roots[i].given;
        failed = put_text(connection, &request, *root ? root : "/", error);
    }
    failed = failed ? failed : mount_connection_ask(connection, &request, &reply, error);
    if (connection)
        mount_connection_give(connection);
    twin->is_single_file = !failed && reply.is_single_file;
    return failed;
}

static void close_twin(struct source_forward *twin)
{
    mount_process_close_source(twin->process, twin->number);
    mount_process_unref(twin->process);
    free(twin);
}

static struct source_forward *find_twin(struct source_disk *disk, uint64_t mounts, struct error *error)
{
    struct source_forward *twin = disk->twins;
    while (twin && twin->process->mounts != mounts)
        twin = twin->next;
    if (twin)
        return twin;
    struct mount_process *process = mount_process_get(mounts, error);
    if (!process)
        return NULL;
    twin = memory_alloc(sizeof *twin);
    *twin = (struct source_forward){.process = process, .number = mount_process_new_source()};
    if (open_twin(disk, twin, error) < 0) {
        close_twin(twin);
        return NULL;
    }
    twin->next = disk->twins;
    disk->twins = twin;
    return twin;
}

void source_forward_close(struct source_disk *disk)
{
    while (disk->twins) {
        struct source_forward *twin = disk->twins;
        disk->twins = twin->next;
        close_twin(twin);
    }
}

/* After a failure: whether it says that a link leads to more mounts, which *mounts has then, too. */
static bool leads_on(uint64_t *mounts, int n_asked, struct error *error)
{
    uint64_t more = mounts_elsewhere(error) & ~*mounts;
    if (!more || n_asked == MAX_MOUNTS || loop_enter_lane(more, error) < 0)
        return false;
    *mounts |= more;
    return true;
}

/* Asks the twin that can answer: `ask` with one after the other. */
static int ask_twins(struct source_disk *disk, uint64_t mounts,
                     int (*ask)(struct source_disk *disk, struct source_forward *twin, void *data, struct error *error),
                     void *data, struct error *error)
{
    int failed, n_asked = 0;
    do {
        struct source_forward *twin = find_twin(disk, mounts, error);
        failed = twin ? ask(disk, twin, data, error) : -1;
    } while (failed && leads_on(&mounts, ++n_asked, error));
    return failed;
}

static int get_kind(struct source_disk *disk, struct source_forward *twin, void *data, struct error *error)
{
    (void)data, (void)error;
    disk->base.is_single_file = twin->is_single_file;
    return 0;
}

int source_forward_open(struct source_disk *disk, uint64_t mounts, struct error *error)
{
    return ask_twins(disk, mounts, get_kind, NULL, error);
}

/* --- listing ------------------------------------------------------------------------------------------------------ */

struct listing {
    char **names;
    size_t n_names, room;
    struct quota_charge charge; /* while they are collected */
};

static int fail_listing(const struct source_disk *disk, struct error *error)
{
    char name[TEXT_NAME_CHARS];
    return fail(error, ERROR_INTERNAL, "BAD_REPLY", "%s: the process that lists it has sent what are no names",
                text_escape(disk->path, strlen(disk->path), name));
}

/* A copy, which nobody changes while it is looked at. */
static int add_names(const struct source_disk *disk, struct mount_connection *connection, uint64_t n_bytes,
                     struct listing *listing, struct error *error)
{
    if (n_bytes > MOUNT_MEMORY_BYTES)
        return fail_listing(disk, error);
    char *bytes = memory_copy(mount_connection_memory(connection), n_bytes);
    size_t before = listing->n_names;
    int failed = quota_charge_add(&listing->charge, n_bytes, error);
    if (!failed && mount_message_add_names(bytes, n_bytes, &listing->names, &listing->n_names, &listing->room) < 0)
        failed = fail_listing(disk, error);
    free(bytes);
    return failed ? failed : quota_charge_add(&listing->charge, (listing->n_names - before) * ENTRY_BYTES, error);
}

static int list(struct source_disk *disk, struct source_forward *twin, void *data, struct error *error)
{
    const struct mount_wait wait = wait_of(disk);
    struct mount_request request = {.op = MOUNT_LIST, .source = twin->number};
    struct mount_reply reply = {0};
    struct mount_connection *connection = mount_connection_take(twin->process, &wait, error);
    int failed = connection ? 0 : -1;
    for (; !failed && !reply.is_last; request.op = MOUNT_LIST_REST) {
        failed = mount_connection_ask(connection, &request, &reply, error);
        failed = failed ? failed : add_names(disk, connection, reply.value, data, error);
    }
    if (connection)
        mount_connection_give(connection);
    return failed;
}

int source_forward_list(struct source_disk *disk, uint64_t mounts, char ***names, size_t *n_names, struct error *error)
{
    struct listing listing = {.charge = metadata_charge()};
    int failed = ask_twins(disk, mounts, list, &listing, error);
    quota_charge_end(&listing.charge);
    while (failed && listing.n_names > 0)
        free(listing.names[--listing.n_names]);
    if (failed)
        free(listing.names);
    *names = failed ? NULL : listing.names;
    *n_names = listing.n_names;
    return failed;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

struct wanted {
    const char *name;
    struct source_file *file;
    struct source_disk_file *opened;
};

static int open_file(struct source_disk *disk, struct source_forward *twin, void *data, struct error *error)
{
    const struct wanted *wanted = data;
    const struct mount_wait wait = wait_of(disk);
    struct mount_request request = {.op = MOUNT_OPEN_FILE, .source = twin->number};
    struct mount_reply reply;
    struct source *source = &disk->base;
    struct mount_connection *connection = mount_connection_take(twin->process, &wait, error);
    int failed = connection ? put_text(connection, &request, wanted->name, error) : -1;
    failed = failed ? failed : mount_connection_ask(connection, &request, &reply, error);
    if (connection)
        mount_connection_give(connection);
    if (failed)
        return -1;
    wanted->file->identity = reply.file.identity;
    wanted->file->size_bytes = reply.file.identity.size_bytes;
    wanted->file->changes_by = (enum change_detector)reply.file.changes_by;
    wanted->file->changes_reason = change_detection_reason(reply.file.changes_reason);
    wanted->opened->twin = twin;
    wanted->opened->twin_file = (uint32_t)reply.value;
    filesystem_add_caps(&source->caps, source->n_files == 0, &reply.file.caps);
    source->caps.fills_shared_memory = source->caps.residency_is_far = true;
    return 0;
}

int source_forward_open_file(struct source_disk *disk, uint64_t mounts, const char *name, struct source_file *file,
                             struct source_disk_file *opened, struct error *error)
{
    return ask_twins(disk, mounts, open_file, &(struct wanted){name, file, opened}, error);
}

static struct mount_request request_about(const struct source_disk_file *opened, enum mount_op op)
{
    return (struct mount_request){.op = op, .source = opened->twin->number, .file = opened->twin_file};
}

static int ask_about(struct source_disk *disk, const struct source_disk_file *opened, const struct cancel *cancel,
                     struct mount_request *request, struct mount_reply *reply, struct error *error)
{
    struct mount_wait wait = wait_of(disk);
    if (cancel)
        wait.cancel = cancel;
    struct mount_connection *connection = mount_connection_take(opened->twin->process, &wait, error);
    int failed = connection ? mount_connection_ask(connection, request, reply, error) : -1;
    if (connection)
        mount_connection_give(connection);
    return failed;
}

/* All of them in one request: the process and its answer cost more than the question. */
uint64_t source_forward_resident_bytes(struct source_disk *disk, const struct source_disk_file *opened,
                                       const struct source_extent *extents, size_t n_extents)
{
    const struct mount_wait wait = wait_of(disk);
    struct mount_request request = request_about(opened, MOUNT_RESIDENT);
    struct mount_reply reply = {0};
    struct error ignored;
    uint64_t bytes = 0;
    struct mount_connection *connection = mount_connection_take(opened->twin->process, &wait, &ignored);
    if (!connection)
        return 0;
    request.text_bytes = (uint32_t)(n_extents * sizeof *extents);
    memcpy(mount_connection_memory(connection), extents, request.text_bytes);
    for (size_t i = 0; i < n_extents; i++)
        bytes += extents[i].bytes;
    uint64_t value = mount_connection_ask(connection, &request, &reply, &ignored) == 0 ? reply.value : 0;
    mount_connection_give(connection);
    return value < bytes ? value : bytes;
}

int source_forward_check(struct source_disk *disk, const struct source_disk_file *opened, enum mount_op how,
                         const struct cancel *cancel, struct error *error)
{
    struct mount_request request = request_about(opened, how);
    struct mount_reply reply;
    return ask_about(disk, opened, cancel, &request, &reply, error);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* A piece is what one request reads: a buffer in memory that the process can map (base/shared_memory.h), which it fills itself,
 * or what fits into a slot, which is copied from there. */
struct piece {
    const struct iovec *iov; /* where it begins ... */
    size_t skip;             /* ... in that buffer */
    uint64_t bytes;
    struct shared_memory *shared; /* NULL = through a slot */
};

struct pieces {
    const struct source_read *read;
    uint64_t alignment;      /* of offsets, of direct reads */
    const struct iovec *iov; /* of the next one */
    size_t skip;
    uint64_t offset;                 /* in the file */
    struct piece asked[MOUNT_SLOTS]; /* the last ones */
    uint64_t n_asked, n_done;
};

static bool is_at_end(const struct pieces *pieces)
{
    return pieces->iov == pieces->read->iov + pieces->read->n_iov;
}

static void go_on(struct pieces *pieces, uint64_t bytes)
{
    pieces->offset += bytes;
    for (bytes += pieces->skip; !is_at_end(pieces) && bytes >= pieces->iov->iov_len; pieces->iov++)
        bytes -= pieces->iov->iov_len;
    pieces->skip = bytes;
}

/* Of a whole buffer at `offset` of the file. */
static struct shared_memory *find_shared(const struct pieces *pieces, const struct iovec *iov, uint64_t offset)
{
    bool is_apart = !pieces->read->direct || (offset | iov->iov_len) % pieces->alignment == 0;
    bool is_worth_it = iov->iov_len >= WORTH_MAPPING_BYTES && iov->iov_len <= MOUNT_MAX_PLACE_BYTES;
    return is_apart && is_worth_it ? shared_memory_find(iov->iov_base, iov->iov_len) : NULL;
}

/* What lies in the page cache is copied to its place while it is still in the cache of a processor; what is read past it
 * goes to a staging buffer, in the largest requests that the kernel makes of it. */
static struct piece next_piece(struct pieces *pieces)
{
    uint64_t most = pieces->read->direct ? MOUNT_SLOT_BYTES : BUFFERED_PIECE_BYTES;
    struct piece piece = {.iov = pieces->iov, .skip = pieces->skip};
    piece.shared = piece.skip == 0 ? find_shared(pieces, piece.iov, pieces->offset) : NULL;
    if (piece.shared) {
        piece.bytes = piece.iov->iov_len;
        go_on(pieces, piece.bytes);
    }
    while (!piece.shared && !is_at_end(pieces) && piece.bytes < most &&
           (pieces->skip > 0 || !find_shared(pieces, pieces->iov, pieces->offset))) {
        uint64_t rest = pieces->iov->iov_len - pieces->skip, room = most - piece.bytes, n = rest < room ? rest : room;
        piece.bytes += n;
        go_on(pieces, n);
    }
    return piece;
}

static int ask_piece(struct mount_connection *connection, struct mount_request *request, struct pieces *pieces,
                     struct error *error)
{
    uint64_t slot = pieces->n_asked % MOUNT_SLOTS;
    request->offset = pieces->offset;
    struct piece piece = pieces->asked[slot] = next_piece(pieces);
    request->op = piece.shared ? MOUNT_READ_INTO : MOUNT_READ;
    request->slot = (uint32_t)slot;
    request->bytes = piece.bytes;
    request->place = piece.shared ? (uint64_t)((unsigned char *)piece.iov->iov_base - piece.shared->address) : 0;
    pieces->n_asked++;
    return mount_connection_send_with(connection, request, piece.shared ? piece.shared->fd : -1, error);
}

static void put_bytes(const struct piece *piece, const unsigned char *bytes, bool is_staged)
{
    const struct iovec *iov = piece->iov;
    size_t skip = piece->skip;
    for (uint64_t left = piece->bytes; left > 0; iov++, skip = 0) {
        size_t room = iov->iov_len - skip, n = left < room ? left : room;
        unsigned char *to = (unsigned char *)iov->iov_base + skip;
        if (n > 0 && is_staged)
            memcpy(to, bytes, n);
        else if (n > 0)
            copy_streaming_row(to, bytes, n);
        bytes += n;
        left -= n;
    }
    copy_streaming_end();
}

/* While one piece is copied out of its slot, the process reads the next ones. */
static int read_pieces(struct mount_connection *connection, struct mount_request *request, struct pieces *pieces,
                       struct error *error)
{
    struct mount_reply reply;
    while (!is_at_end(pieces) || pieces->n_done < pieces->n_asked) {
        while (!is_at_end(pieces) && pieces->n_asked - pieces->n_done < MOUNT_SLOTS)
            if (ask_piece(connection, request, pieces, error) < 0)
                return -1;
        if (mount_connection_receive(connection, &reply, error) < 0)
            return -1;
        uint64_t slot = pieces->n_done++ % MOUNT_SLOTS;
        if (!pieces->asked[slot].shared)
            put_bytes(&pieces->asked[slot], mount_connection_memory(connection) + slot * MOUNT_SLOT_BYTES,
                      pieces->read->direct);
    }
    return 0;
}

/* The connection is given up, and the process may fill them at any time. */
static void lose_memory(const struct pieces *pieces)
{
    for (uint64_t i = pieces->n_done; i < pieces->n_asked; i++)
        if (pieces->asked[i % MOUNT_SLOTS].shared)
            shared_memory_lose(pieces->asked[i % MOUNT_SLOTS].shared);
}

int source_forward_read(struct source_disk *disk, const struct source_disk_file *opened, const struct source_read *read,
                        struct error *error)
{
    struct mount_wait wait = wait_of(disk);
    struct mount_request request = request_about(opened, MOUNT_READ);
    struct pieces pieces = {.read = read, .iov = read->iov, .offset = read->offset};
    request.is_direct = read->direct;
    pieces.alignment = disk->base.caps.direct_offset_alignment ? disk->base.caps.direct_offset_alignment : 1;
    go_on(&pieces, 0); /* leading empty buffers */
    wait.deadline_ns = 0;
    if (read->cancel) {
        wait.cancel = read->cancel;
        wait.uid = read->uid;
    }
    struct mount_connection *connection = mount_connection_take(opened->twin->process, &wait, error);
    int failed = connection ? read_pieces(connection, &request, &pieces, error) : -1;
    if (failed)
        lose_memory(&pieces);
    if (connection)
        mount_connection_give(connection);
    return failed;
}

/* --- roots -------------------------------------------------------------------------------------------------------- */

static char *ask_realpath(struct mount_process *process, const char *path, struct error *error)
{
    const struct mount_wait wait = {.deadline_ns = clock_now_ns() + SECOND_NS};
    struct mount_request request = {.op = MOUNT_REALPATH};
    struct mount_reply reply;
    struct mount_connection *connection = mount_connection_take(process, &wait, error);
    int failed = connection ? put_text(connection, &request, path, error) : -1;
    failed = failed ? failed : mount_connection_ask(connection, &request, &reply, error);
    char *found = NULL;
    if (!failed && reply.value > 0 && reply.value <= MOUNT_SLOT_BYTES) {
        found = memory_copy(mount_connection_memory(connection), reply.value);
        found[reply.value - 1] = '\0';
    } else if (!failed) {
        fail_too_long(path, error);
    }
    if (connection)
        mount_connection_give(connection);
    return found;
}

char *source_forward_realpath(uint64_t mounts, const char *path, struct error *error)
{
    char *found;
    int n_asked = 0;
    do {
        struct mount_process *process = mount_process_get(mounts, error);
        found = process ? ask_realpath(process, path, error) : NULL;
        mount_process_unref(process);
    } while (!found && leads_on(&mounts, ++n_asked, error));
    return found;
}

/* --- glances ------------------------------------------------------------------------------------------------------ */

ssize_t source_forward_glance(uint64_t mounts, const struct glance *glance, enum glance_kind kind, const char *path,
                              char *bytes, size_t room)
{
    const struct mount_wait wait = {
        .cancel = glance->cancel, .deadline_ns = clock_now_ns() + GLANCE_SECONDS * SECOND_NS, .uid = glance->uid};
    struct mount_request request = {.op = MOUNT_GLANCE, .file = kind};
    struct mount_reply reply = {0};
    struct error error;
    request.bytes = room < MOUNT_SLOT_BYTES ? room : MOUNT_SLOT_BYTES;
    if (loop_enter_lane(mounts, &error) < 0)
        return -1;
    struct mount_process *process = mount_process_get(mounts, &error);
    struct mount_connection *connection = process ? mount_connection_take(process, &wait, &error) : NULL;
    int failed = connection ? put_text(connection, &request, path, &error) : -1;
    failed = failed ? failed : mount_connection_ask(connection, &request, &reply, &error);
    if (!failed && reply.value > request.bytes)
        failed = -1;
    if (!failed && reply.value > 0)
        memcpy(bytes, mount_connection_memory(connection), reply.value);
    if (connection)
        mount_connection_give(connection);
    mount_process_unref(process);
    return failed ? -1 : (ssize_t)reply.value;
}
