/* See artifact_scene.h. */
#include "tests/support/artifact_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "resolve/artifact.h"
#include "resolve/header_cache.h"
#include "tests/support/source_memory.h"

#include <cmocka.h>

const struct source_options artifact_scene_options = {0};

struct header_cache *artifact_scene_cache;

int artifact_scene_open(void **state)
{
    struct error error;
    (void)state;
    source_memory_clear();
    return header_cache_create(NULL, 64 << 20, &artifact_scene_cache, &error);
}

int artifact_scene_close(void **state)
{
    (void)state;
    header_cache_destroy(artifact_scene_cache);
    source_memory_clear();
    return 0;
}

void artifact_scene_put_text(const char *file, const char *text)
{
    source_memory_put("m", file, text, strlen(text));
}

void artifact_scene_put_part(const char *file, const char *letters)
{
    char header[4096] = "{", entry[128];
    unsigned char bytes[8192] = {0};
    size_t n = strlen(letters);
    for (size_t i = 0; i < n; i++) {
        snprintf(entry, sizeof entry, "%s\"%c\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[%zu,%zu]}", i ? "," : "",
                 letters[i], 4 * i, 4 * i + 4);
        strcat(header, entry);
    }
    strcat(header, "}");
    uint64_t length = strlen(header);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, length);
    source_memory_put("m", file, bytes, 8 + length + 4 * n);
}

struct artifact *artifact_scene_resolve(bool fresh)
{
    struct artifact *artifact;
    struct error error;
    if (artifact_resolve("memory:m", &artifact_scene_options, artifact_scene_cache, fresh, &artifact, &error) < 0)
        fail_msg("%s", error.message);
    return artifact;
}

void artifact_scene_holds(const struct artifact *artifact, const char *letters)
{
    assert_int_equal(artifact->n_tensors, strlen(letters));
    for (size_t i = 0; i < artifact->n_tensors; i++) {
        assert_int_equal(artifact->tensors[i].name[0], letters[i]);
        assert_int_equal(map_find(&artifact->by_name, &letters[i], 1), i);
    }
    assert_int_equal(map_find(&artifact->by_name, "?", 1), MAP_NONE);
    assert_int_equal(artifact->total_bytes, 4 * strlen(letters));
}
