/* The error value: a gRPC canonical code, a machine-readable reason and a message for people.
 *
 * Fallible functions return 0 or -1 (or a pointer or NULL) and fill `struct error *` exactly when they fail:
 *     return fail(error, ERROR_NOT_FOUND, "TENSOR_NOT_FOUND", "tensor %s is not in %s", name, artifact);
 * The message says what failed and with which values; callers add where with error_prefix(), once.
 * Plain values, no allocation. Any thread. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <stdbool.h>

enum error_code { /* numbers are those of grpc.StatusCode */
                  ERROR_OK = 0,
                  ERROR_CANCELLED = 1,
                  ERROR_INVALID_ARGUMENT = 3,
                  ERROR_DEADLINE_EXCEEDED = 4,
                  ERROR_NOT_FOUND = 5,
                  ERROR_ALREADY_EXISTS = 6,
                  ERROR_PERMISSION_DENIED = 7,
                  ERROR_RESOURCE_EXHAUSTED = 8,
                  ERROR_FAILED_PRECONDITION = 9,
                  ERROR_ABORTED = 10,
                  ERROR_UNIMPLEMENTED = 12,
                  ERROR_INTERNAL = 13,
                  ERROR_UNAVAILABLE = 14,
                  ERROR_DATA_LOSS = 15,
};

enum { ERROR_MESSAGE_CHARS = 1024, ERROR_NOTES_BYTES = 512 };

struct error {
    enum error_code code;
    char reason[64];                   /* UPPER_SNAKE_CASE, becomes google.rpc.ErrorInfo.reason */
    char message[ERROR_MESSAGE_CHARS]; /* UTF-8; names from outside are escaped with text_escape() before they get here */
    char notes[ERROR_NOTES_BYTES];     /* key NUL value NUL, for each error_note(); an empty key ends them */
};

/* Fills `error` and returns -1. */
int fail(struct error *error, enum error_code code, const char *reason, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The same for a failed system call: appends ": strerror (ERRNO)". Maps ENOENT, EACCES, ENOMEM, ... to codes. */
int fail_errno(struct error *error, int errno_value, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Puts "prefix: " before the message. Returns -1. */
int error_prefix(struct error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Repeats a value of the message for programs: becomes google.rpc.ErrorInfo.metadata. UTF-8, as it is, not escaped; what
 * does not fit is left out. Returns -1. */
int error_note(struct error *error, const char *key, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The key of the next note after `key` (NULL = the first), and its value; NULL when there is none. */
const char *error_next_note(const struct error *error, const char *key, const char **value);

/* "NOT_FOUND" for ERROR_NOT_FOUND. */
const char *error_code_name(enum error_code code);

/* Only UNAVAILABLE and ABORTED are worth the same request again. */
bool error_is_retryable(enum error_code code);

#endif
