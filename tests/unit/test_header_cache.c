/* The memory forgets what was used longest ago and never loses count of a reference. Headers survive a restart in the state directory. */
#include "tests/support/unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/metadata.h"
#include "resolve/header_cache.h"
#include "resolve/header_store.h"
#include "resolve/safetensors.h"
#include "tests/support/model_dir.h"

static const char json[] = "{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}";
static const struct source_identity identity = {1, 2, 8 + sizeof json - 1 + 4, 3, 4, 0};
static char state_dir[MODEL_PATH_CHARS];

static int create(void **state)
{
    (void)state;
    model_dir_create(state_dir);
    return 0;
}

static int destroy(void **state)
{
    (void)state;
    model_dir_destroy(state_dir);
    return 0;
}

static struct header_cache *open_cache(void)
{
    struct header_cache *cache;
    struct error error;
    if (header_cache_create(state_dir, 1 << 20, &cache, &error) < 0)
        fail_msg("%s", error.message);
    return cache;
}

/* Adds a header and an index of that identity, of which the header is known at once. */
static void add_both(struct header_cache *cache, const struct source_identity *of)
{
    struct error error;
    struct part_header *header = safetensors_parse(json, sizeof json - 1, identity.size_bytes, &error);
    header_cache_add(cache, &format_safetensors, of, header, json, sizeof json - 1);
    header_cache_add_index(cache, of, "{}", 2);
    assert_true(header_cache_memory_bytes(cache) > 0);
    struct part_header *found = header_cache_find(cache, &format_safetensors, of);
    assert_ptr_equal(found, header);
    part_header_unref(found);
    part_header_unref(header);
}

static void fill(void)
{
    struct header_cache *cache = open_cache();
    add_both(cache, &identity);
    header_cache_destroy(cache);
}

static int count_files(void)
{
    char folder[MODEL_PATH_CHARS];
    int n = 0;
    DIR *directory = opendir(model_dir_path(state_dir, "headers", folder));
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        n += entry->d_name[0] != '.';
    closedir(directory);
    return n;
}

static bool is_known(void)
{
    struct header_cache *cache = open_cache();
    struct part_header *header = header_cache_find(cache, &format_safetensors, &identity);
    if (header)
        assert_string_equal(header->tensors[0].name, "x");
    part_header_unref(header);
    header_cache_destroy(cache);
    return header != NULL;
}

static bool index_is_known(void)
{
    struct header_cache *cache = open_cache();
    char *text;
    uint64_t n = 0;
    bool known = header_cache_find_index(cache, &identity, &text, &n);
    if (known) {
        assert_true(n == 2 && memcmp(text, "{}", 2) == 0);
        metadata_free(text);
    }
    header_cache_destroy(cache);
    return known;
}

TEST_IN(headers_survive_a_restart, create, destroy)
{
    assert_false(is_known());
    fill();
    assert_true(is_known());
    assert_true(index_is_known());
    assert_int_equal(count_files(), 2);
}

TEST_IN(without_a_state_directory_memory_alone_remembers, create, destroy)
{
    struct header_cache *cache;
    struct error error;
    assert_int_equal(header_cache_create(NULL, 1 << 20, &cache, &error), 0);
    add_both(cache, &identity);
    header_cache_destroy(cache);
    header_cache_destroy(NULL);
}

/* Such as that of a file on tmpfs, whose times do not tell: it is over with the process's leases. */
TEST_IN(an_identity_of_this_process_alone_stays_in_memory, create, destroy)
{
    struct source_identity of_span = identity;
    struct header_cache *cache = open_cache();
    char *text;
    uint64_t n;
    of_span.lease_span = 7;
    add_both(cache, &of_span);
    assert_null(header_cache_find(cache, &format_safetensors, &identity));
    assert_false(header_cache_find_index(cache, &of_span, &text, &n));
    assert_int_equal(count_files(), 0);
    header_cache_destroy(cache);
}

static void make_sparse(const char *name, uint64_t bytes)
{
    char path[MODEL_PATH_CHARS];
    int fd = open(model_dir_path(state_dir, name, path), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    close(fd);
}

TEST_IN(the_bytes_of_all_files_are_bounded, create, destroy)
{
    struct error error;
    struct source_identity other = identity;
    fill(); /* makes the folder and two files */
    make_sparse("headers/00000000000000000000000000000001", HEADER_STORE_MAX_BYTES / 2);
    make_sparse("headers/00000000000000000000000000000002", HEADER_STORE_MAX_BYTES / 4);
    struct header_store *store = header_store_open(state_dir, &error);
    assert_non_null(store);
    other.inode = 1;
    header_store_add(store, HEADER_KIND_SAFETENSORS, &other, "x", 1);
    assert_int_equal(count_files(), 5);
    header_store_close(store);
    make_sparse("headers/00000000000000000000000000000003", HEADER_STORE_MAX_BYTES / 4);
    store = header_store_open(state_dir, &error);
    other.inode = 2;
    header_store_add(store, HEADER_KIND_SAFETENSORS, &other, "x", 1);
    assert_in_range(count_files(), 1, 5); /* down to three quarters, the oldest first */
    char *text;
    uint64_t n;
    assert_true(header_store_find(store, HEADER_KIND_SAFETENSORS, &other, &text, &n));
    metadata_free(text);
    header_store_close(store);
}

/* --- values in memory --- */

enum { N_VALUES = 200 };
static struct header_cache *memory;
static struct part_header *values[N_VALUES];

static int create_memory(void **state)
{
    struct error error;
    (void)state;
    for (size_t i = 0; i < N_VALUES; i++) {
        values[i] = memory_alloc(sizeof *values[i]);
        values[i]->references = 1;
    }
    return header_cache_create(NULL, 50, &memory, &error);
}

static int destroy_memory(void **state)
{
    (void)state;
    header_cache_destroy(memory);
    for (size_t i = 0; i < N_VALUES; i++) {
        assert_int_equal(values[i]->references, 1);
        part_header_unref(values[i]);
    }
    return 0;
}

static void add(const char *key, size_t value, uint64_t bytes)
{
    header_cache_add_value(memory, HEADER_CACHE_HEADERS, key, strlen(key), values[value], bytes);
}

static bool has(const char *key)
{
    struct part_header *value = header_cache_find_value(memory, HEADER_CACHE_HEADERS, key, strlen(key));
    part_header_unref(value);
    return value != NULL;
}

TEST_IN(the_oldest_use_goes_first, create_memory, destroy_memory)
{
    add("a", 0, 20);
    add("b", 1, 10);
    add("c", 2, 20);
    assert_true(has("a"));
    add("d", 3, 11); /* one byte too many for one victim */
    assert_true(has("a") && !has("b") && !has("c") && has("d"));
    assert_int_equal(header_cache_memory_bytes(memory), 31);
    assert_true(values[0]->references == 2 && values[1]->references == 1 && values[2]->references == 1);
}

TEST_IN(a_value_as_large_as_the_cap_is_kept_and_a_larger_one_is_not, create_memory, destroy_memory)
{
    add("a", 0, 51);
    assert_false(has("a"));
    add("a", 0, 50);
    assert_true(has("a"));
    add("a", 1, 51); /* the old value is out of date either way */
    assert_false(has("a"));
    assert_int_equal(header_cache_memory_bytes(memory), 0);
}

TEST_IN(a_key_has_its_newest_value_of_its_kind, create_memory, destroy_memory)
{
    add("a", 0, 10);
    add("a", 1, 20);
    assert_int_equal(header_cache_memory_bytes(memory), 20);
    struct part_header *value = header_cache_find_value(memory, HEADER_CACHE_HEADERS, "a", 1);
    assert_ptr_equal(value, values[1]);
    part_header_unref(value);
    assert_null(header_cache_find_value(memory, HEADER_CACHE_TABLES, "a", 1));
}

TEST_IN(many_entries_come_and_go, create_memory, destroy_memory)
{
    char key[8];
    for (size_t i = 0; i < 20 * N_VALUES; i++) {
        snprintf(key, sizeof key, "%zu", i * 37 % N_VALUES);
        add(key, i % N_VALUES, 1);
    }
    assert_int_equal(header_cache_memory_bytes(memory), 50);
    for (size_t i = 0; i < N_VALUES; i++) {
        snprintf(key, sizeof key, "%zu", i * 37 % N_VALUES);
        assert_int_equal(has(key), i >= 150);
    }
}

TEST_IN(shrinking_halves_what_is_held_until_nothing_is_left, create_memory, destroy_memory)
{
    assert_false(header_cache_shrink(memory));
    for (size_t i = 0; i < 8; i++)
        add((char[]){(char)('a' + i), 0}, i, 6);
    assert_true(header_cache_shrink(memory));
    assert_int_equal(header_cache_memory_bytes(memory), 24);
    assert_true(values[3]->references == 1 && values[4]->references == 2);
    assert_true(header_cache_shrink(memory) && header_cache_shrink(memory) && header_cache_shrink(memory));
    assert_int_equal(header_cache_memory_bytes(memory), 0);
    assert_false(header_cache_shrink(memory));
}
