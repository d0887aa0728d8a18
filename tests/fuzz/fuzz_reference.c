/* What people write for an artifact, and percent-encoded texts. Reaches reference.c and text.c. A path that is accepted is
 * absolute and stays what it is when it is read again; what is decoded is no longer than its text and holds no NUL. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/reference.h"
#include "base/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int truth)
{
    if (!truth)
        abort();
}

static void check_path(const char *reference, struct arena *arena)
{
    static const struct reference_base nowhere = {0};
    struct error error = {0};
    const char *path = reference + strlen("disk:");
    check(path[0] == '/' && !strstr(path, "//") && !strstr(path, "/./"));
    if (path[1] == '/' || path[1] == '\0')
        return;
    const char *again = reference_parse(path, &nowhere, arena, &error);
    check(again && strcmp(again, reference) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct reference_base base = {.folder = "/work/here", .home = "/home/ann"};
    struct arena arena = {0};
    struct error error = {0};
    char *text = malloc(size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    const char *reference = reference_parse(text, &base, &arena, &error);
    if (!reference)
        check(error.code != ERROR_OK && error.message[0] && text_is_utf8(error.message, strlen(error.message)));
    else if (reference != text && strncmp(reference, "disk:", strlen("disk:")) == 0)
        check_path(reference, &arena);
    size_t length = strlen(text);
    if (text_percent_decode(text))
        check(strlen(text) <= length);
    arena_fini(&arena);
    free(text);
    return 0;
}
