/* What all stores share, over a backend of this test and a scripted server: how often is asked, and for what. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "base/metadata.h"
#include "source/bucket_source.h"
#include "tests/support/source_bytes.h"
#include "tests/support/http_script.h"

enum { OBJECT_BYTES = 3 * OBJECT_HEAD_BYTES };

static struct scene {
    struct http_script *script;
    struct stores *stores;
    unsigned char object[OBJECT_BYTES];
    unsigned n_lists, n_stats, n_ranges;
    uint64_t first, last; /* of the newest range */
    bool repeats, fails, weak, has_folder, gives_head;
    const char *pin;
    unsigned char sum;
} scene;

static void play(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    scene.first = request->first;
    scene.last = request->last;
    __atomic_add_fetch(&scene.n_ranges, 1, __ATOMIC_RELEASE);
    http_script_send_range(peer, request, OBJECT_BYTES);
}

static void describe(struct object *object)
{
    object->size_bytes = OBJECT_BYTES;
    object->pin = memory_copy_text(scene.pin);
    object->weak = scene.weak;
    object->checksums[0] = (struct checksum){.kind = CHECKSUM_CRC32C, .value = {scene.sum}};
}

static int toy_list(struct object_source *source, struct error *error)
{
    static const char *const names[] = {"b", "a", "c"};
    scene.n_lists++;
    for (size_t i = 0; i < 3; i++) {
        const char *below = source->below ? source->below : "";
        struct object object = {.name = memory_print("%s%s", below, scene.repeats ? "b" : names[i])};
        describe(&object);
        if (object_source_add(source, &object, error) < 0)
            return -1;
    }
    for (size_t i = 0; i < 2 && scene.has_folder && !source->below; i++) /* two pages may tell of it */
        if (object_source_add(source, &(struct object){.name = memory_copy_text("bb/")}, error) < 0)
            return -1;
    error->code = ERROR_UNAVAILABLE;
    return scene.fails ? -1 : 0;
}

static int toy_stat(struct object_source *source, const char *name, struct object *object, struct error *error)
{
    (void)source;
    scene.n_stats++;
    error->code = ERROR_NOT_FOUND;
    describe(object);
    object->head = scene.gives_head ? metadata_alloc(OBJECT_HEAD_BYTES, error) : NULL;
    if (object->head)
        memcpy(object->head, scene.object, object->head_bytes = OBJECT_HEAD_BYTES);
    return strcmp(name, "missing") == 0 ? -1 : 0;
}

static int toy_open_file(struct object_source *source, struct object_file *file, struct error *error)
{
    char url[HTTP_SCRIPT_URL_CHARS];
    (void)source;
    (void)error;
    file->url = memory_copy_text(http_script_url(scene.script, "/x", url));
    return 0;
}

static const struct object_ops listing = {.list = toy_list, .stat = toy_stat, .open = toy_open_file};
static const struct object_ops asking = {.stat = toy_stat, .open = toy_open_file};

static void toy_close(struct source *source)
{
    object_source_fini((struct object_source *)source);
}

static int toy_open(struct source *source, const char *path, const struct source_options *options, struct error *error)
{
    return object_source_init((struct object_source *)source, *path == 'l' ? &listing : &asking, options, "toy", NULL,
                              error);
}

static const struct source_ops toy_ops = {OBJECT_SOURCE_OPS("toy", struct object_source, toy_open, toy_close)};

static struct source *open_toy(const char *kind)
{
    struct source *source = memory_alloc(toy_ops.source_size);
    struct source_options options = {.stores = scene.stores};
    struct error error;
    source->ops = &toy_ops;
    source->references = 1;
    source->reference = memory_copy_text("toy:x");
    assert_int_equal(toy_ops.open(source, kind, &options, &error), 0);
    return source;
}

static size_t add(struct source *source, const char *name)
{
    struct error error;
    size_t file = SIZE_MAX;
    assert_int_equal(source_add_file(source, name, &file, &error), 0);
    return file;
}

static void reads(struct source *source, uint64_t offset, uint64_t count)
{
    unsigned char *bytes = malloc(count);
    struct error error;
    assert_int_equal(source_read_bytes(source, 0, offset, bytes, count, &error), 0);
    assert_memory_equal(bytes, scene.object + offset, count);
    free(bytes);
}

static void was_asked(unsigned n_ranges, uint64_t first, uint64_t last)
{
    assert_int_equal(__atomic_load_n(&scene.n_ranges, __ATOMIC_ACQUIRE), n_ranges);
    assert_int_equal(scene.first, first);
    assert_int_equal(scene.last, last);
}

static int begin(void **state)
{
    struct error error;
    (void)state;
    memset(&scene, 0, sizeof scene);
    scene.pin = "1";
    for (size_t i = 0; i < OBJECT_BYTES; i++)
        scene.object[i] = (unsigned char)(i * 2654435761u >> 13);
    scene.script =
        http_script_start(&(struct http_script_options){.play = play, .object = scene.object, .object_bytes = OBJECT_BYTES});
    return stores_create(config_defaults(), NULL, &scene.stores, &error);
}

static int end(void **state)
{
    (void)state;
    stores_destroy(scene.stores);
    http_script_stop(scene.script);
    return 0;
}

TEST_IN(one_listing_serves_files_names_and_the_source_beside, begin, end)
{
    struct source *source = open_toy("list"), *beside;
    struct error error;
    char **names;
    size_t n_names, file;
    add(source, "a");
    add(source, "c");
    assert_int_equal(source_open_beside(source, &(struct source_options){0}, &beside, &error), 0);
    add(beside, "b");
    assert_int_equal(source_add_file(beside, "missing", &file, &error), -1);
    assert_int_equal(error.code, ERROR_NOT_FOUND);
    assert_int_equal(source_list(beside, NULL, &names, &n_names, &error), 0);
    assert_int_equal(n_names, 3);
    assert_string_equal(names[0], "a");
    for (size_t i = 0; i < n_names; i++)
        free(names[i]);
    free(names);
    assert_int_equal(scene.n_lists, 1);
    assert_int_equal(scene.n_stats, 0);
    assert_int_equal(source->n_files, 2);
    source_unref(source);
    reads(beside, 0, 8); /* it holds what it shares */
    source_unref(beside);
}

static void check_list(struct source *source, const char *folder, const char *const *expected, size_t n_expected)
{
    char **names;
    size_t n_names;
    struct error error;
    assert_int_equal(source_list(source, folder, &names, &n_names, &error), 0);
    assert_int_equal(n_names, n_expected);
    for (size_t i = 0; i < n_names; i++) {
        assert_string_equal(names[i], expected[i]);
        free(names[i]);
    }
    free(names);
}

TEST_IN(a_folder_is_listed_with_the_files_beside_it_and_by_its_own_name, begin, end)
{
    scene.has_folder = true;
    struct source *source = open_toy("list");
    size_t file;
    struct error error;
    check_list(source, NULL, (const char *const[]){"a", "b", "bb/", "c"}, 4);
    check_list(source, "bb", (const char *const[]){"a", "b", "c"}, 3);
    check_list(source, "bb", (const char *const[]){"a", "b", "c"}, 3);
    assert_int_equal(scene.n_lists, 2);
    assert_int_equal(source_add_file(source, "bb/a", &file, &error), 0);
    assert_int_equal(source_add_file(source, "bb/", &file, &error), -1);
    assert_int_equal(error.code, ERROR_NOT_FOUND);
    assert_int_equal(scene.n_lists, 2);
    check_list(source, NULL, (const char *const[]){"a", "b", "bb/", "c"}, 4);
    source_unref(source);
}

TEST_IN(a_listing_that_fails_or_repeats_itself_leaves_nothing_behind, begin, end)
{
    struct error error;
    size_t file;
    for (int fails = 0; fails < 2; fails++) {
        struct source *source = open_toy("list");
        scene.repeats = !fails;
        scene.fails = fails;
        assert_int_equal(source_add_file(source, "b", &file, &error), -1);
        assert_int_equal(error.code, fails ? ERROR_UNAVAILABLE : ERROR_DATA_LOSS);
        assert_int_equal(((struct object_source *)source)->n_objects, 0);
        source_unref(source);
    }
}

static unsigned n_pages, n_wanted;

static int toy_page(struct object_source *source, const char *token, char **next_token, struct error *error)
{
    struct object object = {.name = memory_print("object-%u", n_pages)};
    (void)token;
    describe(&object);
    *next_token = ++n_pages < n_wanted ? memory_print("page-%u", n_pages) : NULL;
    return object_source_add(source, &object, error);
}

static int list_pages(unsigned wanted, struct error *error)
{
    struct source *source = open_toy("list");
    n_pages = 0;
    n_wanted = wanted;
    int failed = bucket_source_list_pages((struct object_source *)source, toy_page, error);
    source_unref(source);
    return failed;
}

TEST_IN(a_listing_has_so_many_pages_and_not_one_more, begin, end)
{
    struct error error;
    assert_int_equal(list_pages(OBJECT_MAX_PAGES, &error), 0);
    assert_int_equal(n_pages, OBJECT_MAX_PAGES);
    assert_int_equal(list_pages(OBJECT_MAX_PAGES + 1, &error), -1);
    assert_string_equal(error.reason, "LISTING_REPEATS");
    assert_int_equal(n_pages, OBJECT_MAX_PAGES);
}

TEST_IN(a_refused_listing_is_not_asked_for_again, begin, end)
{
    struct source *source = open_toy("list"), *beside;
    struct error error;
    char **names;
    size_t n_names, file;
    scene.fails = true;
    assert_int_equal(source_add_file(source, "b", &file, &error), -1);
    scene.fails = false;
    assert_int_equal(source_open_beside(source, &(struct source_options){0}, &beside, &error), 0);
    error.code = ERROR_OK;
    assert_int_equal(source_add_file(beside, "b", &file, &error), -1);
    assert_int_equal(error.code, ERROR_UNAVAILABLE);
    assert_int_equal(source_list(source, NULL, &names, &n_names, &error), -1);
    assert_int_equal(scene.n_lists, 1);
    source_unref(beside);
    source_unref(source);
}

TEST_IN(without_a_listing_each_name_is_asked_for_once, begin, end)
{
    static const char *const expected[] = {"a", "b", "c"};
    struct source *source = open_toy("ask");
    struct error error;
    char **names;
    size_t n_names, file;
    assert_int_equal(source_expect(source, expected, 3, &error), 0);
    assert_int_equal(scene.n_stats, 3);
    for (size_t i = 0; i < 3; i++)
        add(source, expected[i]);
    assert_int_equal(scene.n_stats, 3);
    assert_int_equal(source_add_file(source, "missing", &file, &error), -1);
    assert_int_equal(error.code, ERROR_NOT_FOUND);
    assert_int_equal(source_list(source, NULL, &names, &n_names, &error), -1);
    assert_int_equal(error.code, ERROR_UNIMPLEMENTED);
    source_unref(source);
}

TEST_IN(a_header_costs_one_request, begin, end)
{
    struct source *source = open_toy("list");
    add(source, "a");
    reads(source, 0, 8);
    was_asked(1, 0, OBJECT_HEAD_BYTES - 1);
    reads(source, 8, 1000);
    was_asked(1, 0, OBJECT_HEAD_BYTES - 1);
    reads(source, 8, 1000); /* the head is gone: this is data for all we know */
    was_asked(2, 8, 1007);
    reads(source, 0, 8); /* and is not fetched again */
    was_asked(3, 0, 7);
    source_unref(source);
}

TEST_IN(a_head_that_came_with_the_name_is_the_first_opener_s_and_others_read_their_own, begin, end)
{
    struct source *source = open_toy("ask"), *beside;
    struct error error;
    scene.gives_head = true;
    add(source, "a");
    assert_int_equal(source_open_beside(source, &(struct source_options){0}, &beside, &error), 0);
    add(beside, "a");
    assert_int_equal(scene.n_stats, 1);
    reads(source, 0, OBJECT_HEAD_BYTES);
    assert_int_equal(scene.n_ranges, 0);
    reads(beside, 0, OBJECT_HEAD_BYTES);
    was_asked(1, 0, OBJECT_HEAD_BYTES - 1);
    source_unref(beside);
    source_unref(source);
}

TEST_IN(a_header_longer_than_the_head_costs_two, begin, end)
{
    struct source *source = open_toy("list");
    add(source, "a");
    reads(source, 0, 8);
    reads(source, 8, OBJECT_HEAD_BYTES);
    was_asked(2, OBJECT_HEAD_BYTES, OBJECT_HEAD_BYTES + 7);
    source_unref(source);
}

TEST_IN(a_read_that_wants_a_checksum_gets_its_own_bytes, begin, end)
{
    struct source *source = open_toy("list");
    struct error error;
    unsigned char bytes[100];
    struct iovec iov = {bytes, sizeof bytes};
    size_t file = add(source, "a");
    reads(source, 0, 8);
    struct source_read read = {.file = file, .offset = 50, .iov = &iov, .n_iov = 1, .checksum = CHECKSUM_CRC32C};
    assert_int_equal(source_read(source, &read, &error), 0);
    assert_memory_equal(bytes, scene.object + 50, sizeof bytes);
    was_asked(2, 50, 149);
    assert_true(read.checksum_value != 0);
    source_unref(source);
}

static struct source_identity identity(const char *pin, unsigned char sum)
{
    scene.pin = pin;
    scene.sum = sum;
    struct source *source = open_toy("list");
    size_t file = add(source, "a");
    struct source_identity found = source->files[file].identity;
    source_unref(source);
    return found;
}

static bool same(struct source_identity a, struct source_identity b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

TEST_IN(another_version_or_checksum_is_another_identity, begin, end)
{
    struct source_identity first = identity("1", 7);
    assert_true(same(first, identity("1", 7)));
    assert_false(same(first, identity("2", 7)));
    assert_false(same(first, identity("1", 8)));
}

TEST_IN(only_a_weak_pin_is_asked_about_again, begin, end)
{
    struct error error;
    struct source *strong = open_toy("ask");
    size_t file = add(strong, "a");
    scene.pin = "2";
    assert_int_equal(source_check_unchanged(strong, file, &error), 0);
    assert_int_equal(scene.n_stats, 1);
    source_unref(strong);
    scene.weak = true;
    struct source *weak = open_toy("ask");
    file = add(weak, "a");
    assert_int_equal(source_check_unchanged(weak, file, &error), 0);
    scene.pin = "3";
    assert_int_equal(source_check_unchanged(weak, file, &error), -1);
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    assert_int_equal(scene.n_stats, 4);
    source_unref(weak);
}

TEST_IN(a_listing_has_a_million_objects_and_not_one_more, begin, end)
{
    struct source *source = open_toy("list");
    struct object_source *objects = (struct object_source *)source;
    struct error error;
    int failed = 0;
    for (size_t i = 0; i < OBJECT_MAX_OBJECTS && !failed; i++) {
        struct object object = {.name = memory_print("%zu", i)};
        describe(&object);
        failed = object_source_add(objects, &object, &error);
    }
    assert_int_equal(failed, 0);
    assert_int_equal(objects->n_objects, OBJECT_MAX_OBJECTS);
    struct object one_more = {.name = memory_print("one more")};
    describe(&one_more);
    assert_int_equal(object_source_add(objects, &one_more, &error), -1);
    assert_int_equal(error.code, ERROR_RESOURCE_EXHAUSTED); /* UNIMPLEMENTED would mean that nothing can be listed */
    assert_non_null(strstr(error.message, "1048576"));
    assert_int_equal(objects->n_objects, OBJECT_MAX_OBJECTS);
    source_unref(source);
}

TEST(only_files_of_the_folder_itself_are_part_of_an_artifact)
{
    static const char *const wrong[] = {"m/",   "m",      "m//x",  "m/../x", "m/a/..", "m/./x",
                                        "m/a/", "m/a//b", "m/a/b", "n/x",    ""};
    assert_string_equal(object_source_name_below("m/x", "m/"), "x");
    assert_string_equal(object_source_name_below("m/..x", "m/"), "..x");
    assert_string_equal(object_source_name_below("x", ""), "x");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_null(object_source_name_below(wrong[i], "m/"));
}
