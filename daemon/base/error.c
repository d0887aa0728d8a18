/* Error values are built in the return statement that reports them; see error.h. */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/utf8.h"

#define REASON_TEXT(name) #name,
const char error_reasons[ERROR_KIND_COUNT][ERROR_REASON_CHARS] = {"", ERROR_KINDS(REASON_TEXT)};

/* A message that was cut must still be UTF-8: gRPC and JSON refuse it otherwise. */
static void drop_partial_character(char message[ERROR_MESSAGE_CHARS])
{
    size_t length = strlen(message), start = length;
    while (start > 0 && length - start < 3 && ((unsigned char)message[start - 1] & 0xC0) == 0x80)
        start--;
    if (length + 1 == ERROR_MESSAGE_CHARS && start > 0 && (unsigned char)message[start - 1] >= 0xC0 &&
        utf8_sequence(message + start - 1, length - start + 1) == 0)
        message[start - 1] = '\0';
}

static int fill_error(struct error *error, enum error_code code, const char *reason, const char *format, va_list args)
{
    char message[sizeof error->message]; /* the arguments may point into *error */
    vsnprintf(message, sizeof message, format, args);
    drop_partial_character(message);
    error->code = code;
    error->kind = ERROR_KIND_COUNT; /* the one place where a reason becomes a value: also one that a daemon has sent */
    while (--error->kind > ERROR_KIND_OTHER && strcmp(reason, error_reasons[error->kind]) != 0)
        continue;
    snprintf(error->reason, sizeof error->reason, "%s", reason);
    memcpy(error->message, message, sizeof message);
    error->notes[0] = '\0';
    return -1;
}

int fail(struct error *error, enum error_code code, const char *reason, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fill_error(error, code, reason, format, args);
    va_end(args);
    return -1;
}

static const struct {
    int errno_value;
    enum error_code code;
    const char *reason;
} errno_table[] = {
    {ENOENT, ERROR_NOT_FOUND, "NO_SUCH_FILE"},
    {ENOTDIR, ERROR_NOT_FOUND, "NOT_A_DIRECTORY"},
    {EACCES, ERROR_PERMISSION_DENIED, "ACCESS_DENIED"},
    {EPERM, ERROR_PERMISSION_DENIED, "NOT_PERMITTED"},
    {EROFS, ERROR_PERMISSION_DENIED, "READ_ONLY"},
    {EISDIR, ERROR_INVALID_ARGUMENT, "IS_A_DIRECTORY"},
    {ENAMETOOLONG, ERROR_INVALID_ARGUMENT, "NAME_TOO_LONG"},
    {ELOOP, ERROR_FAILED_PRECONDITION, "TOO_MANY_LINKS"},
    {ENOMEM, ERROR_RESOURCE_EXHAUSTED, "OUT_OF_MEMORY"},
    {ENOSPC, ERROR_RESOURCE_EXHAUSTED, REASON(NO_SPACE)},
    {EDQUOT, ERROR_RESOURCE_EXHAUSTED, REASON(QUOTA_EXCEEDED)},
    {EFBIG, ERROR_RESOURCE_EXHAUSTED, "FILE_TOO_LARGE"},
    {EMFILE, ERROR_RESOURCE_EXHAUSTED, REASON(TOO_MANY_OPEN_FILES)},
    {ENFILE, ERROR_RESOURCE_EXHAUSTED, REASON(TOO_MANY_OPEN_FILES)},
    {EIO, ERROR_DATA_LOSS, "READ_ERROR"},
    {EUCLEAN, ERROR_DATA_LOSS, "READ_ERROR"},
    {EBADMSG, ERROR_DATA_LOSS, "READ_ERROR"},
    {ENOKEY, ERROR_PERMISSION_DENIED, "ACCESS_DENIED"},
    {EKEYEXPIRED, ERROR_PERMISSION_DENIED, "ACCESS_DENIED"},
    {ENXIO, ERROR_FAILED_PRECONDITION, REASON(NOT_A_REGULAR_FILE)},
    {ESPIPE, ERROR_FAILED_PRECONDITION, REASON(NOT_A_REGULAR_FILE)},
    {EADDRINUSE, ERROR_FAILED_PRECONDITION, "ADDRESS_IN_USE"},
    /* what mounts say whose server is gone, slow or out of reach */
    {ENOTCONN, ERROR_UNAVAILABLE, "NO_ANSWER"},
    {ETIMEDOUT, ERROR_UNAVAILABLE, "NO_ANSWER"},
    {EHOSTDOWN, ERROR_UNAVAILABLE, "NO_ANSWER"},
    {EHOSTUNREACH, ERROR_UNAVAILABLE, "NO_ANSWER"},
    {ENETDOWN, ERROR_UNAVAILABLE, "NO_ANSWER"},
    {ENETUNREACH, ERROR_UNAVAILABLE, "NO_ANSWER"},
    {ECONNRESET, ERROR_UNAVAILABLE, "NO_ANSWER"},
    {ECONNREFUSED, ERROR_UNAVAILABLE, "NO_ANSWER"},
    {ECONNABORTED, ERROR_UNAVAILABLE, "NO_ANSWER"},
    {ESHUTDOWN, ERROR_UNAVAILABLE, "NO_ANSWER"},
    {EREMOTEIO, ERROR_UNAVAILABLE, "NO_ANSWER"},
    {ENOLINK, ERROR_UNAVAILABLE, "NO_ANSWER"},
    {ENODEV, ERROR_UNAVAILABLE, "NO_ANSWER"},
    {ENODATA, ERROR_UNAVAILABLE, "NO_ANSWER"},
    {EAGAIN, ERROR_UNAVAILABLE, "NO_ANSWER"},
    {EINTR, ERROR_UNAVAILABLE, "NO_ANSWER"},
    {ESTALE, ERROR_FAILED_PRECONDITION, REASON(SOURCE_CHANGED)},
};

int fail_errno(struct error *error, int errno_value, const char *format, ...)
{
    va_list args;
    enum error_code code = ERROR_INTERNAL;
    const char *reason = "SYSTEM_CALL_FAILED";
    for (size_t i = 0; i < sizeof errno_table / sizeof errno_table[0]; i++) {
        if (errno_table[i].errno_value == errno_value) {
            code = errno_table[i].code;
            reason = errno_table[i].reason;
        }
    }
    va_start(args, format);
    fill_error(error, code, reason, format, args);
    va_end(args);
    const char *name = strerrorname_np(errno_value);
    error_append(error, ": %s (%s)", strerror(errno_value), name ? name : "?");
    struct rlimit limit;
    if (errno_value == EFBIG && getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        error_append(error, "; no file or memory of process %d may be larger than %llu bytes: raise its limit (ulimit -f)",
                     (int)getpid(), (unsigned long long)limit.rlim_cur);
    return -1;
}

int error_prefix(struct error *error, const char *format, ...)
{
    char message[sizeof error->message];
    va_list args;
    va_start(args, format);
    int used = vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (used >= 0 && (size_t)used < sizeof message)
        snprintf(message + used, sizeof message - (size_t)used, ": %s", error->message);
    drop_partial_character(message);
    memcpy(error->message, message, sizeof message);
    return -1;
}

int error_append(struct error *error, const char *format, ...)
{
    size_t used = strlen(error->message);
    va_list args;
    va_start(args, format);
    vsnprintf(error->message + used, sizeof error->message - used, format, args);
    va_end(args);
    drop_partial_character(error->message);
    return -1;
}

const char *error_next_note(const struct error *error, const char *key, const char **value)
{
    const char *at = error->notes;
    if (key)
        at = key + strlen(key) + 1 + strlen(*value) + 1;
    *value = at + strlen(at) + 1;
    return *at ? at : NULL;
}

int error_note(struct error *error, const char *key, const char *format, ...)
{
    const char *value, *last = NULL, *last_value = NULL;
    for (const char *at = NULL; (at = error_next_note(error, at, &value)) != NULL; last = at, last_value = value)
        ;
    char *end = last ? error->notes + (last_value - error->notes) + strlen(last_value) + 1 : error->notes;
    size_t room = sizeof error->notes - (size_t)(end - error->notes), key_bytes = strlen(key) + 1;
    va_list args;
    va_start(args, format);
    int length = room > key_bytes + 1 ? vsnprintf(end + key_bytes, room - key_bytes - 1, format, args) : -1;
    va_end(args);
    if (length < 0 || (size_t)length >= room - key_bytes - 1) {
        *end = '\0';
        return -1;
    }
    memcpy(end, key, key_bytes);
    end[key_bytes + (size_t)length + 1] = '\0';
    return -1;
}

int error_note_tensor(struct error *error, const char *name, size_t name_length)
{
    return error_note(error, "tensor", "%.*s", (int)name_length, name);
}

const char *error_code_name(enum error_code code)
{
    static const char *const names[] = {
        "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
        "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
        "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
        "DATA_LOSS", "UNAUTHENTICATED"};
    return (size_t)code < sizeof names / sizeof names[0] ? names[code] : "UNKNOWN";
}
