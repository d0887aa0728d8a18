/* The command's output is read through a pipe with a deadline; a command that says too much or takes too long is killed.
 * Its messages go where the daemon's go. */
#include "source/s3/aws_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "source/secret.h"

enum { MAX_OUTPUT_BYTES = 64 << 10, TIMEOUT_MS = 60000, POLL_MS = 100 };

/* --- words --- */

struct splitter {
    const char *at;
    char *out; /* behind the words' pointers */
};

/* To the closing quote; false when there is none. */
static bool take_quoted(struct splitter *splitter, char quote)
{
    for (splitter->at++; *splitter->at && *splitter->at != quote; splitter->at++) {
        bool escaped = quote == '"' && *splitter->at == '\\' && (splitter->at[1] == '"' || splitter->at[1] == '\\');
        splitter->at += escaped;
        *splitter->out++ = *splitter->at;
    }
    return *splitter->at++ == quote;
}

static bool take_word(struct splitter *splitter)
{
    while (!strchr(" \t", *splitter->at)) {
        if (*splitter->at == '\'' || *splitter->at == '"') {
            if (!take_quoted(splitter, *splitter->at))
                return false;
            continue;
        }
        if (*splitter->at == '\\' && !*++splitter->at)
            return false;
        *splitter->out++ = *splitter->at++;
    }
    *splitter->out++ = '\0';
    return true;
}

char **aws_process_split(const char *command)
{
    size_t length = strlen(command), n_words = 0, max_words = length / 2 + 2;
    char **words = memory_alloc(max_words * sizeof *words + length + 1);
    struct splitter splitter = {command, (char *)(words + max_words)};
    for (;;) {
        splitter.at += strspn(splitter.at, " \t");
        if (!*splitter.at)
            break;
        words[n_words++] = splitter.out;
        if (!take_word(&splitter)) {
            n_words = 0;
            break;
        }
    }
    if (n_words)
        return words;
    free(words);
    return NULL;
}

/* --- the process --- */

static int start_process(char *const *words, int *output, pid_t *pid, struct error *error)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return fail_errno(error, errno, "a pipe for credential_process");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawnattr_init(&attributes);
    /* the daemon's threads have signals blocked, and SIGPIPE and SIGXFSZ ignored, which a command would inherit */
    sigset_t none, as_usual;
    sigemptyset(&none);
    sigemptyset(&as_usual);
    sigaddset(&as_usual, SIGPIPE);
    sigaddset(&as_usual, SIGXFSZ);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &as_usual);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int failed = posix_spawnp(pid, words[0], &actions, &attributes, words, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    *output = ends[0];
    if (!failed)
        return 0;
    close(ends[0]);
    return fail_errno(error, failed, "credential_process: its program cannot be started");
}

/* Up to the end of the output, or an error. */
static int read_output(int output, const struct cancel *cancel, char *bytes, size_t *count, struct error *error)
{
    uint64_t end = clock_now_ns() + (uint64_t)TIMEOUT_MS * NS_PER_MS;
    for (*count = 0;;) {
        struct pollfd ready = {.fd = output, .events = POLLIN};
        if (cancel_is_set(cancel))
            return fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled while credential_process ran");
        if (clock_now_ns() > end)
            return fail(error, ERROR_DEADLINE_EXCEEDED, "CREDENTIAL_PROCESS_FAILED",
                        "credential_process did not end within %d s", TIMEOUT_MS / 1000);
        if (poll(&ready, 1, POLL_MS) <= 0)
            continue;
        ssize_t n_read = read(output, bytes + *count, MAX_OUTPUT_BYTES + 1 - *count);
        if (n_read < 0 && errno == EINTR)
            continue;
        if (n_read <= 0)
            return n_read < 0 ? fail_errno(error, errno, "the output of credential_process") : 0;
        *count += (size_t)n_read;
        if (*count > MAX_OUTPUT_BYTES)
            return fail(error, ERROR_UNAVAILABLE, "CREDENTIAL_PROCESS_FAILED", "credential_process wrote more than %d bytes",
                        MAX_OUTPUT_BYTES);
    }
}

static int end_process(pid_t pid, struct error *error)
{
    uint64_t end = clock_now_ns() + (uint64_t)TIMEOUT_MS * NS_PER_MS;
    int status;
    for (;;) { /* its output has ended, so it will in a moment */
        pid_t ended = waitpid(pid, &status, clock_now_ns() < end ? WNOHANG : 0);
        if (ended == pid)
            break;
        if (ended < 0 && errno != EINTR)
            return fail_errno(error, errno, "waiting for credential_process");
        poll(NULL, 0, POLL_MS / 10);
        if (clock_now_ns() > end)
            kill(pid, SIGKILL);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    bool exited = WIFEXITED(status);
    return fail(error, ERROR_PERMISSION_DENIED, "CREDENTIAL_PROCESS_FAILED", "credential_process ended with %s %d",
                exited ? "status" : "signal", exited ? WEXITSTATUS(status) : WTERMSIG(status));
}

static int run_words(char *const *words, const struct cancel *cancel, struct aws_keys *keys, struct error *error)
{
    struct error ending;
    size_t count;
    pid_t pid;
    int output = -1;
    if (start_process(words, &output, &pid, error) < 0)
        return -1;
    char *bytes = memory_alloc(MAX_OUTPUT_BYTES + 1);
    int failed = read_output(output, cancel, bytes, &count, error);
    if (failed)
        kill(pid, SIGKILL);
    close(output);
    if (end_process(pid, failed ? &ending : error) < 0)
        failed = -1;
    if (!failed && aws_keys_parse_json(bytes, count, keys, error) < 0)
        failed = error_prefix(error, "credential_process");
    secret_free(bytes);
    return failed;
}

int aws_process_run(const char *command, const struct cancel *cancel, struct aws_keys *keys, struct error *error)
{
    char **words = aws_process_split(command);
    if (!words)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_CREDENTIAL_PROCESS", "credential_process is no command line");
    int failed = run_words(words, cancel, keys, error);
    free(words);
    return failed;
}
