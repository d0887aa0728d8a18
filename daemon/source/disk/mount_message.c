/* See mount_message.h. A name of a folder is a text without a slash that is not empty. */
#include "source/disk/mount_message.h"

#include <string.h>

#include "base/memory.h"
#include "source/disk/change_detection.h"

enum { LONGEST_NAME_BYTES = 4 * 255 }; /* no file system of Linux has longer ones; FUSE has 1024 */

static bool is_text(const char *bytes, size_t room)
{
    return memchr(bytes, '\0', room) != NULL;
}

int mount_message_check_request(const struct mount_request *request, size_t n_bytes)
{
    if (n_bytes != sizeof *request || request->op >= MOUNT_OPS || request->text_bytes > MOUNT_MEMORY_BYTES)
        return -1;
    if (request->op == MOUNT_READ_INTO)
        return request->bytes == 0 || request->bytes > MOUNT_MAX_PLACE_BYTES || request->place > INT64_MAX / 2 ? -1 : 0;
    if (request->op == MOUNT_RESIDENT && (request->text_bytes % sizeof(struct source_extent) != 0 ||
                                          request->text_bytes > SOURCE_MAX_EXTENTS * sizeof(struct source_extent)))
        return -1;
    bool tells_bytes = request->op == MOUNT_READ || request->op == MOUNT_GLANCE;
    return tells_bytes && (request->slot >= MOUNT_SLOTS || request->bytes > MOUNT_SLOT_BYTES) ? -1 : 0;
}

static bool is_caps(const struct source_caps *caps)
{
    return is_text(caps->filesystem_type, sizeof caps->filesystem_type) &&
           (caps->filesystem == SOURCE_LOCAL || caps->filesystem == SOURCE_NETWORK);
}

static bool is_error(struct error *error)
{
    memset(error->notes + sizeof error->notes - 3, 0, 3); /* the end of a value, and of the notes */
    return error->code > ERROR_OK && error->code <= ERROR_DATA_LOSS && is_text(error->reason, sizeof error->reason) &&
           is_text(error->message, sizeof error->message);
}

int mount_message_check_reply(struct mount_reply *reply, size_t n_bytes)
{
    if (n_bytes != MOUNT_REPLY_BYTES && n_bytes != sizeof *reply)
        return -1;
    memset((char *)reply + n_bytes, 0, sizeof *reply - n_bytes);
    if (reply->has_failed)
        return n_bytes == sizeof *reply && is_error(&reply->error) ? 0 : -1;
    bool is_sound = is_caps(&reply->file.caps) && reply->file.changes_by <= CHANGES_RACY &&
                    change_detection_reason(reply->file.changes_reason);
    return is_sound ? 0 : -1;
}

int mount_message_get_error(const struct mount_reply *reply, struct error *error)
{
    fail(error, reply->error.code, reply->error.reason, "%s", reply->error.message);
    memcpy(error->notes, reply->error.notes, sizeof error->notes);
    return -1;
}

size_t mount_message_split(const char *bytes, size_t n_bytes, const char *texts[MOUNT_MAX_TEXTS])
{
    size_t n_texts = 0;
    if (n_bytes == 0 || bytes[n_bytes - 1] != '\0')
        return 0;
    for (const char *end = bytes + n_bytes; bytes < end; bytes += strlen(bytes) + 1) {
        if (n_texts == MOUNT_MAX_TEXTS)
            return 0;
        texts[n_texts++] = bytes;
    }
    return n_texts;
}

int mount_message_add_names(const char *bytes, size_t n_bytes, char ***names, size_t *n_names, size_t *room)
{
    if (n_bytes > 0 && bytes[n_bytes - 1] != '\0')
        return -1;
    for (const char *end = bytes + n_bytes; bytes < end; bytes += strlen(bytes) + 1) {
        size_t length = strlen(bytes);
        if (length == 0 || length > LONGEST_NAME_BYTES || memchr(bytes, '/', length) ||
            (*n_names > 0 && strcmp((*names)[*n_names - 1], bytes) > 0))
            return -1;
        ARRAY_RESERVE(*names, *n_names, *room);
        (*names)[(*n_names)++] = memory_copy_text(bytes);
    }
    return 0;
}
