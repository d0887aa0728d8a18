/* The error value: a gRPC canonical code, a machine-readable reason and a message for people.
 *
 * Fallible functions return 0 or -1 (or a pointer or NULL) and fill `struct error *` exactly when they fail:
 *     return fail(error, ERROR_NOT_FOUND, "TENSOR_NOT_FOUND", "tensor %s is not in %s", name, artifact);
 * The message says what failed and with which values; callers add where with error_prefix(), once.
 * Plain values, no allocation. Any thread. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <stdbool.h>
#include <stddef.h>

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

/* The reasons that code decides on; every other reason is only printed. Write REASON(ARENA_FULL) instead of
 * "ARENA_FULL", and compare error->kind with ERROR_KIND_ARENA_FULL: a typo in either does not compile. */
/* clang-format off */
#define ERROR_KINDS(X) \
    X(ARENA_FULL) X(BAD_REDIRECT) X(DAEMON_UNREACHABLE) X(DEADLINE_EXCEEDED) X(DESCRIPTORS_EXCEEDED) X(DOCUMENT_TOO_LARGE) \
    X(FORBIDDEN_ADDRESS) X(FOREIGN_LINK) X(IS_A_FOLDER) X(METADATA_EXCEEDED) X(NOT_A_REGULAR_FILE) X(NO_SPACE) X(OBJECT_CHANGED) \
    X(OUTSIDE_TRUSTED_ROOTS) X(NOT_RESIDENT) X(OUTSIDE_TRUSTED_URLS) X(PLAIN_HTTP) X(PROXY_FAILED) X(QUOTA_EXCEEDED) X(REDIRECT_TO_THIS_HOST) X(SOCKET_FORBIDDEN) X(SOCKET_IN_USE) X(SOURCE_BEING_WRITTEN) \
    X(SOURCE_CHANGED) X(TOO_MANY_OPEN_FILES) X(WRITER_EXISTS) \
    X(UPLOAD_GONE) X(CERTIFICATE_EXPIRED) X(PEER_CLOCK) X(PEER_IS_ANOTHER) X(PEER_REFUSED) X(PEER_STATUS) X(PEER_UNPROVEN) \
    X(TLS_FAILED)
/* clang-format on */
#define ERROR_KIND_ID(name) ERROR_KIND_##name,
enum error_kind { ERROR_KIND_OTHER, ERROR_KINDS(ERROR_KIND_ID) ERROR_KIND_COUNT };

enum { ERROR_MESSAGE_CHARS = 1024, ERROR_NOTES_BYTES = 512, ERROR_REASON_CHARS = 64 };
extern const char error_reasons[ERROR_KIND_COUNT][ERROR_REASON_CHARS];
#define REASON(name) error_reasons[ERROR_KIND_##name]

struct error {
    enum error_code code;
    enum error_kind kind;              /* of the reason */
    char reason[ERROR_REASON_CHARS];   /* UPPER_SNAKE_CASE, becomes google.rpc.ErrorInfo.reason */
    char message[ERROR_MESSAGE_CHARS]; /* UTF-8; names from outside are escaped with text_escape() before they get here */
    char notes[ERROR_NOTES_BYTES];     /* key NUL value NUL, for each error_note(); an empty key ends them */
};

/* Fills `error` and returns -1. */
int fail(struct error *error, enum error_code code, const char *reason, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The same for a failed system call: appends ": strerror (ERRNO)". Maps ENOENT, EACCES, ENOMEM, ... to codes. */
int fail_errno(struct error *error, int errno_value, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Puts "prefix: " before the message, or a text behind it. Returns -1. */
int error_prefix(struct error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));
int error_append(struct error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Repeats a value of the message for programs: becomes google.rpc.ErrorInfo.metadata. UTF-8, as it is, not escaped; what
 * does not fit is left out. Returns -1. */
int error_note(struct error *error, const char *key, const char *format, ...) __attribute__((format(printf, 3, 4)));
int error_note_tensor(struct error *error, const char *name, size_t name_length); /* key "tensor" */
/* The key of the next note after `key` (NULL = the first), and its value; NULL when there is none. */
const char *error_next_note(const struct error *error, const char *key, const char **value);

/* "NOT_FOUND" for ERROR_NOT_FOUND. */
const char *error_code_name(enum error_code code);

#endif
