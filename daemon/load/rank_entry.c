#include "load/rank_entry.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/digest.h"
#include "base/json.h"
#include "base/memory.h"
#include "hosts/membership.h"
#include "load/rank_needs.h"

enum { N_TEXTS = 6, REST_CHARS = 1 << 10 };
_Static_assert(RANK_NEEDS_MAX_CHARS + REST_CHARS <= MEMBERSHIP_MAX_VALUE_BYTES, "an entry with all that it needs is told");

static const struct {
    const char *name;
    size_t offset, room;
} texts[N_TEXTS] = {
#define TEXT(member)                                                                                                        \
    {                                                                                                                       \
#member, offsetof(struct rank_entry, member), sizeof((struct rank_entry *)0)->member                                \
    }
    TEXT(host), TEXT(incarnation), TEXT(load), TEXT(reference), TEXT(artifact), TEXT(policy)};

bool rank_entry_parse_key(const char *key, struct rank_entry *entry)
{
    size_t prefix = strlen("groups/"), middle = strlen("/ranks/"), digits;
    char *end;
    if (strncmp(key, "groups/", prefix) != 0 || strcspn(key + prefix, "/") != RANK_DIGEST_CHARS - 1)
        return false;
    const char *rank = key + prefix + RANK_DIGEST_CHARS - 1;
    if (strncmp(rank, "/ranks/", middle) != 0)
        return false;
    rank += middle;
    digits = strspn(rank, "0123456789");
    unsigned long number = strtoul(rank, &end, 10);
    memcpy(entry->group, key + prefix, RANK_DIGEST_CHARS - 1);
    entry->group[RANK_DIGEST_CHARS - 1] = '\0';
    entry->rank = (uint32_t)number;
    return digits > 0 && digits < 10 && *end == '\0' && (*rank != '0' || digits == 1);
}

bool rank_entry_parse(const char *key, const char *value, struct rank_entry *entry)
{
    struct json json;
    struct arena arena;
    uint64_t world_size = 0;
    char *read[N_TEXTS] = {NULL};
    *entry = (struct rank_entry){0};
    struct json_field fields[N_TEXTS + 2] = {[N_TEXTS] = {"world_size", NULL, &world_size}, {"needs", &entry->needs, NULL}};
    for (size_t i = 0; i < N_TEXTS; i++)
        fields[i] = (struct json_field){texts[i].name, &read[i], NULL};
    arena_init(&arena, 0);
    json_init(&json, value, strlen(value), &arena);
    bool is_good = json_take_fields(&json, fields, N_TEXTS + 2) && json_end(&json) && rank_entry_parse_key(key, entry) &&
                   world_size > entry->rank && world_size <= UINT32_MAX &&
                   (!entry->needs || rank_needs_is_good(entry->needs));
    arena_fini(&arena);
    for (size_t i = 0; i < N_TEXTS; i++) {
        size_t length = read[i] ? strlen(read[i]) : 0;
        is_good = is_good && length > 0 && length < texts[i].room;
        if (is_good)
            memcpy((char *)entry + texts[i].offset, read[i], length);
        free(read[i]);
    }
    entry->world_size = (uint32_t)world_size;
    if (!is_good) {
        free(entry->needs);
        entry->needs = NULL;
    }
    return is_good;
}

char *rank_entry_key(const struct rank_entry *entry)
{
    return memory_print("groups/%s/ranks/%" PRIu32, entry->group, entry->rank);
}

char *rank_entry_write(const struct rank_entry *entry)
{
    struct json_writer writer = {0};
    json_write_open(&writer, '{');
    for (size_t i = 0; i < N_TEXTS; i++)
        json_put_text(&writer, texts[i].name, (const char *)entry + texts[i].offset);
    json_put_u64(&writer, "world_size", entry->world_size);
    if (entry->needs)
        json_put_text(&writer, "needs", entry->needs);
    json_write_close(&writer, '}');
    return writer.text;
}

void rank_entry_digest(const char *const *from, size_t n_texts, char out[RANK_DIGEST_CHARS])
{
    unsigned char bytes[DIGEST_BYTES];
    struct digest *digest = digest_create();
    for (size_t i = 0; i < n_texts; i++)
        digest_add_text(digest, from[i]);
    digest_finish(digest, bytes);
    digest_hex(bytes, (RANK_DIGEST_CHARS - 1) / 2, out);
}
