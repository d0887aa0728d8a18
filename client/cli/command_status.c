/* Once, or again and again: on a terminal in place, elsewhere a whole report each time. An interrupt ends it at once. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/client.h"
#include "command.h"
#include "fit_text.h"
#include "served.h"

static int print_status(struct backend *backend, bool is_watch, struct error *error)
{
    const struct args *args = backend->args;
    struct tc_error cause;
    uint64_t left_ms;
    char *result;
    size_t columns = terminal_columns();
    if (backend_time_left(backend, &left_ms, error) < 0)
        return -1;
    if (client_status(served_client(backend), left_ms, columns, args->json ? &result : NULL, args->json ? NULL : &result,
                      &cause) < 0)
        return served_fail(error, &cause);
    if (is_watch && columns && !args->json)
        fputs("\x1b[H\x1b[2J", stdout);
    size_t length = strlen(result);
    printf("%s%s", result, length && result[length - 1] == '\n' ? "" : "\n");
    free(result);
    return 0;
}

/* A report of a busy daemon has tens of KiB, so that a pipe of 64 KiB would stop the watch for whoever reads only now and then. */
static void widen_pipe(void)
{
    enum { ROOM_BYTES = 1 << 20 };
    (void)fcntl(STDOUT_FILENO, F_SETPIPE_SZ, ROOM_BYTES); /* of what is no pipe, or beyond the user's quota: as it was */
}

int command_status(struct backend *backend, struct error *error)
{
    uint64_t every_ms = backend->args->output.watch_ms;
    const struct timespec pause = {(time_t)(every_ms / 1000), (long)(every_ms % 1000) * 1000000};
    if (every_ms)
        widen_pipe();
    int status = print_status(backend, every_ms > 0, error);
    while (status == 0 && every_ms && fflush(stdout) == 0) {
        nanosleep(&pause, NULL);
        if (!backend->args->json && !isatty(STDOUT_FILENO))
            putchar('\n');
        status = print_status(backend, true, error);
    }
    return status;
}
