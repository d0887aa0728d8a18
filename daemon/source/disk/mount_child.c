/* Requests come from a daemon of the same build and are checked all the same: a number of a source or a file that is none is
 * refused, and who sends what is no request is not answered any more. */
#include "source/disk/mount_child.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "source/disk/change_detection.h"
#include "source/disk/glance.h"
#include "source/disk/mount_message.h"
#include "source/disk/mounts.h"
#include "source/disk/source_disk.h"

enum { STACK_BYTES = 1 << 20, MAX_FDS = 2, PLACE_ALIGNMENT = 2 << 20 };

struct served { /* a source; in the list until it is closed, and alive as long as somebody works on it */
    struct served *next;
    uint64_t number;
    struct source *source;  /* NULL until it is open */
    pthread_rwlock_t files; /* written to while one is added */
    int references;
};

struct service {      /* of a connection */
    int fd, place_fd; /* place_fd: came with the request; -1 = nothing did */
    unsigned char *memory;
    char **names; /* of a listing that is being told */
    size_t n_names, n_told;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list and of references */
static struct served *sources;
static const struct source_format *known_format; /* const once there are threads */

/* --- sources ------------------------------------------------------------------------------------------------------ */

static void unref_served(struct served *served)
{
    pthread_mutex_lock(&lock);
    bool is_last = --served->references == 0;
    pthread_mutex_unlock(&lock);
    if (!is_last)
        return;
    source_unref(served->source);
    pthread_rwlock_destroy(&served->files);
    free(served);
}

static struct served **find_link(uint64_t number)
{
    struct served **link = &sources;
    while (*link && (*link)->number != number)
        link = &(*link)->next;
    return link;
}

static struct served *get_served(uint64_t number, struct error *error)
{
    pthread_mutex_lock(&lock);
    struct served *served = *find_link(number);
    if (served && served->source)
        served->references++;
    else
        served = NULL;
    pthread_mutex_unlock(&lock);
    if (!served)
        fail(error, ERROR_INTERNAL, "BAD_REQUEST", "no source has this number");
    return served;
}

static struct served *add_served(uint64_t number)
{
    struct served *served = memory_alloc(sizeof *served);
    served->number = number;
    served->references = 2; /* the list's and the caller's */
    pthread_rwlock_init(&served->files, NULL);
    pthread_mutex_lock(&lock);
    served->next = sources;
    sources = served;
    pthread_mutex_unlock(&lock);
    return served;
}

static void close_served(uint64_t number)
{
    pthread_mutex_lock(&lock);
    struct served **link = find_link(number), *served = *link;
    if (served)
        *link = served->next;
    pthread_mutex_unlock(&lock);
    if (served)
        unref_served(served); /* descriptors of FUSE are closed on threads of their own, see closing.h */
}

/* --- requests that name no source, or a new one --------------------------------------------------------------------- */

/* Copies the texts first: nobody changes them while they are looked at. Frees with `*bytes`. */
static size_t take_texts(const struct service *service, const struct mount_request *request, char **bytes,
                         const char *texts[MOUNT_MAX_TEXTS], struct error *error)
{
    *bytes = memory_alloc(request->text_bytes + 1);
    memcpy(*bytes, service->memory, request->text_bytes);
    size_t n_texts = mount_message_split(*bytes, request->text_bytes, texts);
    if (n_texts == 0)
        fail(error, ERROR_INTERNAL, "BAD_REQUEST", "a request without the texts that it needs");
    return n_texts;
}

static int open_source(struct service *service, const struct mount_request *request, struct mount_reply *reply,
                       struct error *error)
{
    const char *texts[MOUNT_MAX_TEXTS];
    struct source *source = NULL;
    char *bytes;
    size_t n_texts = take_texts(service, request, &bytes, texts, error);
    struct served *served = add_served(request->source);
    char *reference = memory_print("disk:%s", n_texts > 0 ? texts[0] : "");
    const struct source_options options = {
        .trusted_roots = texts + 1, .n_trusted_roots = n_texts ? n_texts - 1 : 0, .allow_relative = !request->is_confined};
    int failed = n_texts == 0 || source_open(reference, &options, &source, error) < 0 ? -1 : 0;
    pthread_mutex_lock(&lock);
    served->source = source;
    pthread_mutex_unlock(&lock);
    reply->is_single_file = source && source->is_single_file;
    free(reference);
    free(bytes);
    unref_served(served);
    return failed;
}

static int find_realpath(struct service *service, const struct mount_request *request, struct mount_reply *reply,
                         struct error *error)
{
    const char *texts[MOUNT_MAX_TEXTS];
    char *bytes, *found = NULL;
    if (take_texts(service, request, &bytes, texts, error) > 0)
        found = mounts_realpath(texts[0], error);
    if (found) {
        reply->value = strlen(found) + 1;
        memcpy(service->memory, found, reply->value);
    }
    free(found);
    free(bytes);
    return reply->value > 0 ? 0 : -1;
}

static int glance_for(struct service *service, const struct mount_request *request, struct mount_reply *reply,
                      struct error *error)
{
    const char *texts[MOUNT_MAX_TEXTS];
    char *bytes;
    ssize_t found = -1;
    if (take_texts(service, request, &bytes, texts, error) > 0) {
        found =
            glance_here(known_format, (enum glance_kind)request->file, texts[0], (char *)service->memory, request->bytes);
        fail(error, ERROR_NOT_FOUND, "NO_SUCH_FILE", "there is no such thing");
    }
    free(bytes);
    reply->value = found < 0 ? 0 : (uint64_t)found;
    return found < 0 ? -1 : 0;
}

/* --- requests about a source ---------------------------------------------------------------------------------------- */

static void free_names(struct service *service)
{
    for (size_t i = 0; i < service->n_names; i++)
        free(service->names[i]);
    free(service->names);
    service->names = NULL;
    service->n_names = service->n_told = 0;
}

static void tell_names(struct service *service, struct mount_reply *reply)
{
    for (; service->n_told < service->n_names; service->n_told++) {
        size_t bytes = strlen(service->names[service->n_told]) + 1;
        if (reply->value + bytes > MOUNT_MEMORY_BYTES)
            return;
        memcpy(service->memory + reply->value, service->names[service->n_told], bytes);
        reply->value += bytes;
    }
    reply->is_last = true;
    free_names(service);
}

static int add_file(struct service *service, const struct mount_request *request, struct served *served,
                    struct mount_reply *reply, struct error *error)
{
    const char *texts[MOUNT_MAX_TEXTS];
    char *bytes;
    size_t index;
    int failed = take_texts(service, request, &bytes, texts, error) == 0 ? -1 : 0;
    pthread_rwlock_wrlock(&served->files);
    if (!failed && (failed = source_add_file(served->source, texts[0], &index, error)) == 0) {
        const struct source_file *file = &served->source->files[index];
        reply->value = index;
        reply->file = (struct mount_opened){.identity = file->identity,
                                            .caps = served->source->caps,
                                            .changes_by = file->changes_by,
                                            .changes_reason = change_detection_reason_number(file->changes_reason)};
    }
    pthread_rwlock_unlock(&served->files);
    free(bytes);
    return failed;
}

static int read_file(const struct mount_request *request, struct source *source, void *to, struct error *error)
{
    struct iovec iov = {to, request->bytes};
    struct source_read read = {.file = request->file,
                               .offset = request->offset,
                               .iov = &iov,
                               .n_iov = 1,
                               .direct = request->is_direct && source->caps.direct_reads};
    return source_read(source, &read, error);
}

/* Mapped for this read alone: memory that is written to elsewhere cannot be sealed, so what a read that never ends has here is
 * handed out by nobody. Its size is sealed. At 2 MiB: it may be of huge pages. */
static int read_into(const struct service *service, const struct mount_request *request, struct source *source,
                     struct error *error)
{
    struct stat status;
    uint64_t skip = request->place % PLACE_ALIGNMENT, mapped = skip + request->bytes;
    mapped += -mapped % PLACE_ALIGNMENT;
    if (service->place_fd < 0 || fstat(service->place_fd, &status) < 0 ||
        (uint64_t)status.st_size < request->place + request->bytes)
        return fail(error, ERROR_INTERNAL, "BAD_REQUEST", "a read into memory that is not there");
    unsigned char *room = mmap(NULL, mapped + PLACE_ALIGNMENT, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                  *memory = room;
    if (room != MAP_FAILED)
        memory = mmap(room + (-(uintptr_t)room & (PLACE_ALIGNMENT - 1)), mapped, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_FIXED, service->place_fd, (off_t)(request->place - skip));
    int failed = memory == MAP_FAILED
                     ? fail_errno(error, errno, "mapping %llu bytes to be read into", (unsigned long long)request->bytes)
                     : read_file(request, source, memory + skip, error);
    if (room != MAP_FAILED)
        munmap(room, mapped + PLACE_ALIGNMENT);
    return failed;
}

static int count_resident(const struct service *service, const struct mount_request *request, struct source *source,
                          struct mount_reply *reply, struct error *error)
{
    struct source_extent *extents = memory_copy(service->memory, request->text_bytes);
    size_t n_extents = request->text_bytes / sizeof *extents;
    uint64_t file_bytes = source->files[request->file].size_bytes;
    bool is_sound = true;
    for (size_t i = 0; i < n_extents; i++)
        is_sound = is_sound && extents[i].offset <= file_bytes && extents[i].bytes <= file_bytes - extents[i].offset;
    reply->value = is_sound ? source_resident_extents(source, request->file, extents, n_extents) : 0;
    free(extents);
    return is_sound ? 0 : fail(error, ERROR_INTERNAL, "BAD_REQUEST", "the file has no such bytes");
}

/* With served->files read-locked, of a file that there is. */
static int ask_file(struct service *service, const struct mount_request *request, struct source *source,
                    struct mount_reply *reply, struct error *error)
{
    switch ((enum mount_op)request->op) {
    case MOUNT_READ:
        return read_file(request, source, service->memory + (size_t)request->slot * MOUNT_SLOT_BYTES, error);
    case MOUNT_READ_INTO:
        return read_into(service, request, source, error);
    case MOUNT_RESIDENT:
        return count_resident(service, request, source, reply, error);
    case MOUNT_CHECK_UNCHANGED:
        return source_check_unchanged(source, request->file, NULL, error);
    default:
        return source_check_still(source, request->file, error);
    }
}

static int ask_source(struct service *service, const struct mount_request *request, struct mount_reply *reply,
                      struct error *error)
{
    struct served *served = get_served(request->source, error);
    int failed = served ? 0 : -1;
    if (failed)
        return -1;
    if (request->op == MOUNT_LIST) {
        free_names(service);
        failed = source_list(served->source, &service->names, &service->n_names, error);
        if (!failed)
            tell_names(service, reply);
    } else if (request->op == MOUNT_OPEN_FILE) {
        failed = add_file(service, request, served, reply, error);
    } else {
        pthread_rwlock_rdlock(&served->files);
        failed = request->file < served->source->n_files
                     ? ask_file(service, request, served->source, reply, error)
                     : fail(error, ERROR_INTERNAL, "BAD_REQUEST", "no file has this number");
        pthread_rwlock_unlock(&served->files);
    }
    unref_served(served);
    return failed;
}

/* --- packets ------------------------------------------------------------------------------------------------------ */

/* The number of descriptors that came. */
static int receive_packet(int fd, void *bytes, size_t size, int fds[MAX_FDS], ssize_t *n_bytes)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(MAX_FDS * sizeof(int))];
    } rights;
    struct iovec iov = {bytes, size};
    struct msghdr packet = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = rights.room, .msg_controllen = sizeof rights.room};
    do
        *n_bytes = recvmsg(fd, &packet, MSG_CMSG_CLOEXEC);
    while (*n_bytes < 0 && errno == EINTR);
    const struct cmsghdr *header = *n_bytes > 0 ? CMSG_FIRSTHDR(&packet) : NULL;
    if (!header || header->cmsg_type != SCM_RIGHTS)
        return 0;
    size_t n_fds = (header->cmsg_len - CMSG_LEN(0)) / sizeof *fds;
    memcpy(fds, CMSG_DATA(header), n_fds * sizeof *fds);
    return (int)n_fds;
}

/* --- connections -------------------------------------------------------------------------------------------------- */

static int answer_request(struct service *service, const struct mount_request *request, struct mount_reply *reply)
{
    switch ((enum mount_op)request->op) {
    case MOUNT_OPEN:
        return open_source(service, request, reply, &reply->error);
    case MOUNT_REALPATH:
        return find_realpath(service, request, reply, &reply->error);
    case MOUNT_GLANCE:
        return glance_for(service, request, reply, &reply->error);
    case MOUNT_LIST_REST:
        tell_names(service, reply);
        return 0;
    default:
        return ask_source(service, request, reply, &reply->error);
    }
}

static void close_place(struct service *service)
{
    if (service->place_fd >= 0)
        close(service->place_fd);
    service->place_fd = -1;
}

/* False at the end, and of what is no request. */
static bool receive_request(struct service *service, struct mount_request *request)
{
    int fds[MAX_FDS];
    ssize_t n_bytes;
    int n_fds = receive_packet(service->fd, request, sizeof *request, fds, &n_bytes);
    service->place_fd = n_fds > 0 ? fds[0] : -1;
    for (int i = 1; i < n_fds; i++)
        close(fds[i]);
    return n_bytes > 0 && mount_message_check_request(request, (size_t)n_bytes) == 0;
}

static void *serve(void *argument)
{
    struct service *service = argument;
    struct mount_request request;
    while (receive_request(service, &request)) {
        struct mount_reply reply = {.number = request.number};
        reply.has_failed = answer_request(service, &request, &reply) < 0;
        close_place(service);
        send(service->fd, &reply, reply.has_failed ? sizeof reply : MOUNT_REPLY_BYTES, MSG_NOSIGNAL);
    }
    close_place(service);
    free_names(service);
    munmap(service->memory, MOUNT_MEMORY_BYTES);
    close(service->fd);
    free(service);
    return NULL;
}

/* Takes both descriptors. */
static void start_service(int fd, int memory_fd)
{
    pthread_attr_t attributes;
    pthread_t thread;
    struct stat status;
    bool is_large = fstat(memory_fd, &status) == 0 && status.st_size >= MOUNT_MEMORY_BYTES;
    void *memory = is_large ? mmap(NULL, MOUNT_MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0) : MAP_FAILED;
    struct service *service = memory_alloc(sizeof *service);
    *service = (struct service){.fd = fd, .place_fd = -1, .memory = memory};
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    close(memory_fd);
    if (memory == MAP_FAILED || pthread_create(&thread, &attributes, serve, service) != 0) {
        close(fd); /* the daemon sees that */
        if (memory != MAP_FAILED)
            munmap(memory, MOUNT_MEMORY_BYTES);
        free(service);
    }
    pthread_attr_destroy(&attributes);
}

/* --- control ------------------------------------------------------------------------------------------------------ */

static void obey(const struct mount_control *message, const int *fds, int n_fds)
{
    if (message->kind == MOUNT_CONNECT && n_fds == 2) {
        start_service(fds[0], fds[1]);
        return;
    }
    if (message->kind == MOUNT_PING && n_fds == 1)
        send(fds[0], "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    else if (message->kind == MOUNT_CLOSE)
        close_served(message->source);
    for (int i = 0; i < n_fds; i++)
        close(fds[i]);
}

void mount_child_run_if_asked(int argc, char **argv, const struct source_format *format)
{
    static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGPIPE}; /* the daemon gets them, too, and may be draining */
    struct mount_control message;
    int fds[MAX_FDS], n_fds;
    ssize_t n_bytes;
    if (argc < 3 || strcmp(argv[1], MOUNT_CHILD_ARGUMENT) != 0) {
        mounts_leave_fuse(0);
        return;
    }
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    known_format = format;
    prctl(PR_SET_NAME, "tensorcast-fuse");
    prctl(PR_SET_DUMPABLE, 0);
    if (chdir("/") < 0)
        _exit(1);
    mounts_leave_fuse(strtoull(argv[2], NULL, 16));
    for (;;) {
        n_fds = receive_packet(MOUNT_CHILD_SOCKET, &message, sizeof message, fds, &n_bytes);
        if (n_bytes != sizeof message)
            _exit(0);
        obey(&message, fds, n_fds);
    }
}
