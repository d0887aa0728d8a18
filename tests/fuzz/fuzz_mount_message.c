/* What the daemon and the processes of FUSE mounts send each other: requests, replies, texts and names of folders. Reaches
 * mount_message.c. Whatever is accepted has ends, and is in order. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "source/disk/mount_message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_names(const char *bytes, size_t size)
{
    char **names = NULL;
    size_t n_names = 0, room = 0, n_bytes = 0;
    int failed = mount_message_add_names(bytes, size, &names, &n_names, &room);
    for (size_t i = 0; i < n_names; i++) {
        n_bytes += strlen(names[i]) + 1;
        if (!names[i][0] || strchr(names[i], '/') || (i > 0 && strcmp(names[i - 1], names[i]) > 0))
            abort();
    }
    if (failed ? n_bytes > size : n_bytes != size)
        abort();
    while (n_names > 0)
        free(names[--n_names]);
    free(names);
}

static void check_texts(const char *bytes, size_t size)
{
    static const char *texts[MOUNT_MAX_TEXTS];
    size_t n_texts = mount_message_split(bytes, size, texts), n_bytes = 0;
    for (size_t i = 0; i < n_texts; i++)
        n_bytes += strlen(texts[i]) + 1;
    if (n_texts > 0 && n_bytes != size)
        abort();
}

static void check_reply(const uint8_t *data, size_t size)
{
    struct mount_reply reply;
    struct error error;
    const char *key = NULL, *value;
    memset(&reply, 0xff, sizeof reply);
    memcpy(&reply, data, size < sizeof reply ? size : sizeof reply);
    if (mount_message_check_reply(&reply, size) < 0 || !reply.has_failed)
        return;
    if (mount_message_get_error(&reply, &error) == 0 || strlen(error.message) >= sizeof error.message)
        abort();
    while ((key = error_next_note(&error, key, &value)) != NULL)
        if (strlen(key) + strlen(value) > sizeof error.notes)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mount_request request = {0};
    char *bytes = malloc(size + 1); /* of that size: reads beyond it are noticed */
    memcpy(bytes, data, size);
    check_names(bytes, size);
    check_texts(bytes, size);
    free(bytes);
    check_reply(data, size);
    memcpy(&request, data, size < sizeof request ? size : sizeof request);
    if (mount_message_check_request(&request, size) == 0 &&
        (request.op >= MOUNT_OPS || request.text_bytes > MOUNT_MEMORY_BYTES))
        abort();
    return 0;
}
