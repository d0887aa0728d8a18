/* Finding the daemon, and the small functions of the library. */
#include "client.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/reference.h"
#include "base/runtime_folder.h"
#include "handoff.h"
#include "unreachable.h"

#define DEFAULT_SOCKET "/run/tensorcast/daemon.sock"

enum { STATUS_WAIT_MS = 1000 };

struct sockets {
    const char *path, *other; /* other: the second default; NULL = the first was named */
    char room[sizeof((struct sockaddr_un *)NULL)->sun_path];
};

int client_fail(struct tc_error *to, const struct error *from)
{
    if (!to)
        return -1;
    to->code = (int)from->code;
    snprintf(to->reason, sizeof to->reason, "%s", from->reason);
    snprintf(to->message, sizeof to->message, "%s", from->message);
    _Static_assert(sizeof to->notes == sizeof from->notes, "the same form");
    memcpy(to->notes, from->notes, sizeof to->notes);
    return -1;
}

const char *tc_error_note(const struct tc_error *error, const char *key, const char **value)
{
    struct error notes;
    const char *start = notes.notes, *next;
    memcpy(notes.notes, error->notes, sizeof notes.notes);
    if (key)
        *value = start + (*value - error->notes);
    next = error_next_note(&notes, key ? start + (key - error->notes) : NULL, value);
    *value = error->notes + (*value - start);
    return next ? error->notes + (next - start) : NULL;
}

struct wait client_wait(const struct tc_options *options)
{
    return wait_begin(options ? options->timeout_ms : 0, options ? options->cancel : NULL);
}

/* What a daemon that is well answers at once; NULL: it does not. */
static const Tensorcast__Daemon__V1__StatusResponse *ask_status(struct tc_client *client, const struct tc_cancel *cancel,
                                                                struct arena *arena)
{
    Tensorcast__Daemon__V1__StatusRequest request = TENSORCAST__DAEMON__V1__STATUS_REQUEST__INIT;
    const struct wait wait = wait_begin(STATUS_WAIT_MS, cancel);
    struct error ignored;
    request.own_requests_only = true;
    return rpc_client_get(client->rpc, "Status", &request.base, &tensorcast__daemon__v1__status_response__descriptor, &wait,
                          arena, &ignored);
}

static int tell_wait(const struct wait *wait, const char *method, char told[WAIT_TOLD_CHARS])
{
    struct arena arena;
    arena_init(&arena, 0);
    const Tensorcast__Daemon__V1__StatusResponse *status = ask_status(wait->client, wait->cancel, &arena);
    /* The longest of this connection's calls of that name: of several threads, one thread's. */
    const Tensorcast__Daemon__V1__RequestStatus *row = NULL;
    for (size_t i = 0; status && i < status->n_requests; i++)
        if (strcmp(status->requests[i]->method, method) == 0)
            row = status->requests[i];
    bool is_told = row && !row->waiting_for[0] && row->total_bytes;
    snprintf(told, WAIT_TOLD_CHARS, "%s%s", is_told ? "" : "waiting for ",
             is_told                      ? row->stage
             : row && row->waiting_for[0] ? row->waiting_for
                                          : "the daemon to answer");
    int stop = wait->options->progress(wait->options->data, told, row ? row->done_bytes : 0, row ? row->total_bytes : 0);
    arena_fini(&arena);
    return stop;
}

struct wait client_patient_wait(struct tc_client *client, const struct tc_options *options)
{
    struct wait wait = client_wait(options);
    if (!options || !options->progress)
        return wait;
    wait.tell = tell_wait;
    wait.client = client;
    wait.options = options;
    return wait;
}

/* One that does not answer may have been stopped or restarted; one that does has both sockets. */
const char *client_handoff(struct tc_client *client, const char *path, const struct wait *wait, struct arena *arena,
                           struct error *error)
{
    const char *found = handoff_find(client->socket_path, path, arena);
    if (access(found, F_OK) == 0 || errno != ENOENT || !ask_status(client, wait->cancel, arena) || access(found, F_OK) == 0)
        return found;
    unreachable_handoff(client->socket_path, path, error);
    return NULL;
}

/* As shells and Python find it. */
static const char *home_directory(struct arena *arena)
{
    enum { ENTRY_BYTES = 16 << 10 };
    struct passwd entry, *found = NULL;
    const char *home = getenv("HOME");
    if (home)
        return home;
    char *buffer = arena_alloc(arena, ENTRY_BYTES);
    return getpwuid_r(getuid(), &entry, buffer, ENTRY_BYTES, &found) == 0 && found ? found->pw_dir : NULL;
}

const char *client_reference(const char *text, struct arena *arena, struct error *error)
{
    char folder[PATH_MAX];
    struct reference_base base = {0};
    if (reference_is_bare(text) && access(text, F_OK) == 0) {
        char *path = arena_alloc(arena, strlen("./") + strlen(text) + 1);
        text = strcat(strcpy(path, "./"), text);
    }
    if (text[0] == '~')
        base.home = home_directory(arena);
    if (reference_is_relative(text))
        base.folder = getcwd(folder, sizeof folder);
    return reference_parse(text, &base, arena, error);
}

/* The system's daemon, unless only this user's own (`tensorcastd --user`) is there for us. */
static void choose_default(struct sockets *sockets)
{
    char folder[PATH_MAX];
    int length = runtime_folder(folder) ? snprintf(sockets->room, sizeof sockets->room, "%s/daemon.sock", folder) : -1;
    bool has_name = length > 0 && (size_t)length < sizeof sockets->room;
    bool is_own = has_name && access(DEFAULT_SOCKET, W_OK) != 0 && runtime_folder_is_trusted(folder) &&
                  access(sockets->room, W_OK) == 0;
    sockets->path = is_own ? sockets->room : DEFAULT_SOCKET;
    bool is_another = has_name && access(folder, F_OK) == 0 && !runtime_folder_is_trusted(folder);
    sockets->other = is_own ? DEFAULT_SOCKET : has_name && !is_another ? sockets->room : NULL;
}

static void choose_socket(const char *given, struct sockets *sockets)
{
    const char *path = given && given[0] ? given : getenv("TENSORCAST_SOCKET");
    *sockets = (struct sockets){.path = path};
    if (!path || !path[0])
        choose_default(sockets);
    else if (strncmp(path, "unix:", strlen("unix:")) == 0)
        sockets->path = path + strlen("unix:");
}

struct tc_client *tc_connect(const char *socket, struct tc_error *error)
{
    struct sockets sockets;
    size_t most = sizeof sockets.room - 1;
    choose_socket(socket, &sockets);
    const char *path = sockets.path;
    if (strlen(path) > most) {
        struct error cause;
        fail(&cause, ERROR_INVALID_ARGUMENT, "PATH_TOO_LONG", "the socket path %s has %zu bytes, it may have %zu", path,
             strlen(path), most);
        client_fail(error, &cause);
        return NULL;
    }
    struct tc_client *client = memory_alloc(sizeof *client);
    client->socket_path = memory_copy_text(path);
    client->rpc = rpc_client_create(path, sockets.other);
    return client;
}

void tc_disconnect(struct tc_client *client)
{
    if (!client)
        return;
    rpc_client_destroy(client->rpc);
    free(client->socket_path);
    free(client);
}

const char *tc_socket_path(const struct tc_client *client)
{
    return client->socket_path;
}

const char *tc_version(void)
{
    return VERSION;
}

const char *tc_code_name(int code)
{
    return error_code_name((enum error_code)code);
}
