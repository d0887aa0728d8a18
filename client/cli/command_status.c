/* status, hosts, top: once, or again and again, on a terminal in place, elsewhere a whole report each time. health: whether it answers.
 * An interrupt ends them at once. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "client/client.h"
#include "client/status_text.h"
#include "command.h"
#include "fit_text.h"
#include "message/status_json.h"
#include "served.h"
#include "top_text.h"

enum { TOP_EVERY_MS = 1000, HEALTH_MS = 5000 };

static char *status_report(const struct args *args, const Tensorcast__Daemon__V1__StatusResponse *status)
{
    switch (args->command) {
    case COMMAND_HOSTS:
        return args->json ? status_hosts_json(status) : status_hosts_text(status);
    case COMMAND_TOP:
        return args->json ? status_json(status) : top_text(status, terminal_columns(), terminal_rows());
    default:
        return args->json ? status_json(status) : status_text(status, terminal_columns());
    }
}

/* Of `top`, which fits the terminal, each line erases what was there, so that nothing flickers. */
static void redraw(const struct args *args, const char *text)
{
    fputs(args->command == COMMAND_TOP ? "\x1b[H" : "\x1b[H\x1b[2J", stdout);
    for (const char *line = text; *line;) {
        int length = (int)strcspn(line, "\n");
        printf("%.*s\x1b[K\n", length, line);
        line += length + (line[length] == '\n');
    }
    fputs("\x1b[J", stdout);
}

static int print_status(struct backend *backend, bool is_redrawn, struct error *error)
{
    uint64_t left_ms;
    struct arena arena;
    if (backend_time_left(backend, &left_ms, error) < 0)
        return -1;
    arena_init(&arena, 0);
    const Tensorcast__Daemon__V1__StatusResponse *status =
        client_status(served_client(backend), false, left_ms, &arena, error);
    if (status) {
        char *text = status_report(backend->args, status);
        size_t length = strlen(text);
        if (is_redrawn)
            redraw(backend->args, text);
        else
            printf("%s%s", text, length && text[length - 1] == '\n' ? "" : "\n");
        free(text);
    }
    arena_fini(&arena);
    return status ? 0 : -1;
}

int command_status(struct backend *backend, struct error *error)
{
    const struct args *args = backend->args;
    bool is_terminal = terminal_columns() && !args->json;
    uint64_t every_ms = args->output.watch_ms;
    if (!every_ms && args->command == COMMAND_TOP && is_terminal)
        every_ms = TOP_EVERY_MS;
    const struct timespec pause = {(time_t)(every_ms / 1000), (long)(every_ms % 1000) * 1000000};
    if (every_ms) {
        /* A report of a busy daemon has tens of KiB, so that a pipe of 64 KiB would stop the watch when its reader pauses. */
        enum { ROOM_BYTES = 1 << 20 };
        (void)fcntl(STDOUT_FILENO, F_SETPIPE_SZ, ROOM_BYTES); /* of what is no pipe, or beyond the user's quota: as it was */
    }
    if (every_ms && is_terminal && args->command == COMMAND_TOP)
        fputs("\x1b[2J", stdout);
    int status = print_status(backend, every_ms && is_terminal, error);
    while (status == 0 && every_ms && fflush(stdout) == 0) {
        nanosleep(&pause, NULL);
        if (!args->json && !is_terminal)
            putchar('\n');
        status = print_status(backend, is_terminal, error);
    }
    return status;
}

/* A daemon that drains lives, and is not ready. */
int command_health(struct backend *backend, struct error *error)
{
    const struct args *args = backend->args;
    uint64_t left_ms;
    struct arena arena;
    struct json_writer json = {0};
    if (backend_time_left(backend, &left_ms, error) < 0)
        return -1;
    arena_init(&arena, 0);
    const Tensorcast__Daemon__V1__StatusResponse *status =
        client_status(served_client(backend), true, left_ms ? left_ms : HEALTH_MS, &arena, error);
    bool is_ready = status && strcmp(status->state, "draining") != 0;
    int failed = status ? 0 : -1;
    if (status && args->serve.ready && !is_ready) {
        failed = fail(error, ERROR_UNAVAILABLE, "SHUTTING_DOWN",
                      "the daemon on %s is not ready: it is stopping, and takes no new loads",
                      tc_socket_path(served_client(backend)));
    } else if (status && args->json) {
        json_write_open(&json, '{');
        json_put_bool(&json, "live", true);
        json_put_bool(&json, "ready", is_ready);
        json_write_close(&json, '}');
        printf("%s\n", json.text);
        free(json.text);
    } else if (status && !args->quiet) {
        puts(is_ready ? "ready" : "live, and draining");
    }
    arena_fini(&arena);
    return failed;
}
