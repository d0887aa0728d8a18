/* Parts of files as they lie in the page cache: what is read there, also of a file that is cut off meanwhile. */
#include "tests/support/unit.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sink/sink_window.h"
#include "base/bus_guard.h"

enum { FILE_BYTES = (5 << 20) + 77, OFFSET_BYTES = 1 << 20 };

struct scene {
    int fd;
    char *bytes;
};

static int begin(void **state)
{
    struct scene *scene = calloc(1, sizeof *scene);
    scene->fd = memfd_create("window", MFD_CLOEXEC);
    scene->bytes = malloc(FILE_BYTES);
    for (size_t i = 0; i < FILE_BYTES; i++)
        scene->bytes[i] = (char)(i * 2654435761u >> 13 | 1); /* no zeros */
    *state = scene;
    return write(scene->fd, scene->bytes, FILE_BYTES) != FILE_BYTES;
}

static int end(void **state)
{
    struct scene *scene = *state;
    close(scene->fd);
    free(scene->bytes);
    free(scene);
    return 0;
}

static struct sink_window *open_rest(const struct scene *scene)
{
    struct sink_window *window = sink_window_open(scene->fd, OFFSET_BYTES, FILE_BYTES - OFFSET_BYTES);
    assert_non_null(window);
    return window;
}

/* First: before each other cmocka puts its handler in place of ours. */
TEST_IN(what_is_cut_off_is_no_signal_and_is_told, begin, end)
{
    const struct scene *scene = *state;
    struct sink_window *window = open_rest(scene), *other = sink_window_open(scene->fd, 0, OFFSET_BYTES);
    const char *bytes = sink_window_bytes(window);
    assert_int_equal(ftruncate(scene->fd, OFFSET_BYTES + 10), 0);
    assert_memory_equal(bytes, scene->bytes + OFFSET_BYTES, 10);
    assert_true(sink_window_is_whole(window)); /* nothing that is lost was looked at */
    assert_int_equal(bytes[3 << 20], 0);
    assert_int_equal(bytes[(4 << 20) + 76], 0);
    assert_false(sink_window_is_whole(window));
    assert_memory_equal(sink_window_bytes(other), scene->bytes, OFFSET_BYTES);
    assert_true(sink_window_is_whole(other));
    sink_window_close(window);
    sink_window_close(other);
}

TEST_IN(a_window_shows_the_bytes_of_its_part, begin, end)
{
    const struct scene *scene = *state;
    struct sink_window *window = open_rest(scene);
    assert_memory_equal(sink_window_bytes(window), scene->bytes + OFFSET_BYTES, FILE_BYTES - OFFSET_BYTES);
    assert_true(sink_window_is_whole(window));
    sink_window_close(window);
}

TEST_IN(what_cannot_be_mapped_has_no_window, begin, end)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_null(sink_window_open(ends[0], 0, 4096));
    close(ends[0]);
    close(ends[1]);
}

TEST_IN(more_than_can_be_guarded_have_no_window_until_others_are_closed, begin, end)
{
    static struct sink_window *windows[BUS_GUARD_MAX];
    const struct scene *scene = *state;
    for (size_t i = 0; i < BUS_GUARD_MAX; i++)
        assert_non_null(windows[i] = sink_window_open(scene->fd, 0, 4096));
    assert_null(sink_window_open(scene->fd, 0, 4096));
    for (size_t i = 0; i < BUS_GUARD_MAX; i++)
        sink_window_close(windows[i]);
    sink_window_close(open_rest(scene));
}
