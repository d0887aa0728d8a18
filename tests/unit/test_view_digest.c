/* The name of a view: the same for the same tensors cut the same way into the same places, and for nothing else. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "resolve/view_digest.h"

struct scene {
    struct tensor_record records[2];
    struct view_tensor tensors[2];
    uint64_t shapes[2][2], starts[2][2];
    struct artifact artifact; /* of no recipe */
    struct mapping mapping;
};

static void scene_init(struct scene *scene)
{
    *scene = (struct scene){.shapes = {{4, 8}, {2, 2}}};
    scene->records[0] = (struct tensor_record){.name = "a", .name_length = 1, .dtype = DTYPE_F16, .rank = 2};
    scene->records[1] = (struct tensor_record){.name = "b", .name_length = 1, .dtype = DTYPE_U8, .rank = 2};
    for (int i = 0; i < 2; i++)
        scene->tensors[i] =
            (struct view_tensor){.record = &scene->records[i], .shape = scene->shapes[i], .bytes = 4 * 8 * 2};
    scene->mapping =
        (struct mapping){.artifact = &scene->artifact, .tensors = scene->tensors, .n_tensors = 2, .align_bytes = 64};
}

static void digest(const struct scene *scene, char hex[DIGEST_HEX_CHARS + 1])
{
    const uint64_t *const starts[] = {scene->starts[0], scene->starts[1]};
    view_digest(&scene->mapping, starts, NULL, hex);
    assert_int_equal(strlen(hex), DIGEST_HEX_CHARS);
}

static void assert_equal_to_plain(const struct scene *scene, bool equal)
{
    struct scene plain;
    char one[DIGEST_HEX_CHARS + 1], other[DIGEST_HEX_CHARS + 1];
    scene_init(&plain);
    digest(&plain, one);
    digest(scene, other);
    assert_int_equal(strcmp(one, other) == 0, equal);
}

TEST(the_same_view_has_the_same_digest)
{
    struct scene scene;
    scene_init(&scene);
    assert_equal_to_plain(&scene, true);
}

TEST(what_is_cut_and_where_it_lands_is_in_it)
{
    for (int change = 0; change < 6; change++) {
        struct scene scene;
        scene_init(&scene);
        scene.mapping.align_bytes = change == 0 ? 128 : 64;
        scene.mapping.n_tensors = change == 1 ? 1 : 2;
        scene.records[1].name = change == 2 ? "c" : "b";
        scene.records[0].dtype = change == 3 ? DTYPE_BF16 : DTYPE_F16; /* as many bytes, another meaning */
        scene.shapes[1][1] = change == 4 ? 1 : 2;
        scene.starts[1][0] = change == 5;
        assert_equal_to_plain(&scene, false);
    }
}

TEST(the_order_of_tensors_is_in_it)
{
    struct scene scene;
    scene_init(&scene);
    struct view_tensor first = scene.tensors[0];
    scene.tensors[0] = scene.tensors[1];
    scene.tensors[1] = first;
    assert_equal_to_plain(&scene, false);
}

TEST(where_an_empty_box_begins_is_not_in_it)
{
    struct scene scene;
    char one[DIGEST_HEX_CHARS + 1], other[DIGEST_HEX_CHARS + 1];
    scene_init(&scene);
    scene.shapes[0][0] = scene.tensors[0].bytes = 0;
    digest(&scene, one);
    scene.starts[0][0] = 3;
    digest(&scene, other);
    assert_string_equal(one, other);
}

TEST(names_and_their_neighbours_do_not_run_together)
{
    struct scene scene;
    char one[DIGEST_HEX_CHARS + 1], other[DIGEST_HEX_CHARS + 1];
    scene_init(&scene);
    scene.records[0].rank = scene.records[1].rank = 0;
    scene.records[0].name = "ab";
    scene.records[0].name_length = 2;
    scene.records[1].name = "c";
    digest(&scene, one);
    scene.records[0].name_length = 1;
    scene.records[1].name = "bc";
    scene.records[1].name_length = 2;
    digest(&scene, other);
    assert_string_not_equal(one, other);
}

TEST(names_around_and_beyond_the_buffer_are_in_it_to_the_last_letter)
{
    enum { BUFFER = 1 << 16 };
    struct scene scene;
    char one[DIGEST_HEX_CHARS + 1], other[DIGEST_HEX_CHARS + 1], *name = memory_alloc(2 * BUFFER);
    for (uint32_t length = BUFFER - 40; length < BUFFER + 40; length++) {
        scene_init(&scene);
        memset(name, 'x', 2 * BUFFER);
        scene.records[0].name = name;
        scene.records[0].name_length = length;
        digest(&scene, one);
        name[length - 1] = 'y';
        digest(&scene, other);
        assert_string_not_equal(one, other);
    }
    free(name);
}
