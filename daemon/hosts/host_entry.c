/* See host_entry.h. */
#include "hosts/host_entry.h"

#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/arena.h"
#include "base/json.h"
#include "base/memory.h"
#include "hosts/host_settings.h"

bool host_name_is_good(const char *name)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
    size_t length = strlen(name);
    return length > 0 && length < HOST_NAME_CHARS && strspn(name, letters) == length && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

static bool is_address(const char *text)
{
    struct address address;
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0, digits = colon ? strlen(colon + 1) : 0;
    bool is_v6 = length > 2 && text[0] == '[' && text[length - 1] == ']';
    return digits > 0 && digits <= 5 && strspn(colon + 1, "0123456789") == digits && strtoul(colon + 1, NULL, 10) <= 65535 &&
           address_parse(text + is_v6, length - 2 * is_v6, &address);
}

void host_entry_fini(struct host_entry *entry)
{
    char *texts[] = {entry->name, entry->domain, entry->address, entry->incarnation, entry->version};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        free(texts[i]);
    *entry = (struct host_entry){0};
}

bool host_entry_parse(const char *key, const char *value, struct host_entry *entry)
{
    struct json json;
    struct arena arena;
    *entry = (struct host_entry){0};
    const struct json_field fields[] = {{"name", &entry->name, NULL},       {"domain", &entry->domain, NULL},
                                        {"address", &entry->address, NULL}, {"incarnation", &entry->incarnation, NULL},
                                        {"version", &entry->version, NULL}, {"started_ms", NULL, &entry->started_ms}};
    arena_init(&arena, 0);
    json_init(&json, value, strlen(value), &arena);
    bool is_good = json_take_fields(&json, fields, sizeof fields / sizeof fields[0]) && json_end(&json) && entry->name &&
                   entry->address && entry->incarnation && entry->version && host_name_is_good(entry->name) &&
                   host_name_is_good(entry->incarnation) &&
                   (!entry->domain || !*entry->domain || host_name_is_good(entry->domain)) &&
                   strlen(entry->version) < HOST_NAME_CHARS && is_address(entry->address);
    arena_fini(&arena);
    if (is_good && !entry->domain)
        entry->domain = memory_copy_text("");
    char *expected = is_good ? host_entry_key(entry) : NULL;
    is_good = is_good && strcmp(key, expected) == 0;
    free(expected);
    if (!is_good)
        host_entry_fini(entry);
    return is_good;
}

char *host_entry_key(const struct host_entry *entry)
{
    return memory_print("hosts/%s/%s", entry->name, entry->incarnation);
}

char *host_entry_write(const struct host_entry *entry)
{
    struct json_writer writer = {0};
    json_write_open(&writer, '{');
    json_put_text(&writer, "name", entry->name);
    json_put_text(&writer, "domain", entry->domain);
    json_put_text(&writer, "address", entry->address);
    json_put_text(&writer, "version", entry->version);
    json_put_text(&writer, "incarnation", entry->incarnation);
    json_put_u64(&writer, "started_ms", entry->started_ms);
    json_write_close(&writer, '}');
    return writer.text;
}
