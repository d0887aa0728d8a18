/* What is written is a valid file in view order, and no process ever sees half of it. */
#include "tests/support/unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/out_file.h"
#include "client/cli/safetensors_writer.h" /* before cmocka.h, whose macro fail() would hide base/error.h's function */
#include "tests/support/shell.h"

static char folder[64], path[128];
static struct error error;

static const uint64_t shape_w[] = {2, 3}, shape_e[] = {0, 7}, shape_b[] = {3};
static const struct report_json_tensor tensors[] = {
    {.name = "w", .name_length = 1, .dtype = "U8", .shape = shape_w, .rank = 2, .data = "abcdef", .bytes = 6},
    {.name = "empty", .name_length = 5, .dtype = "F32", .shape = shape_e, .rank = 2, .data = "", .bytes = 0},
    {.name = "a\"\n\xc3\xa9", .name_length = 5, .dtype = "BF16", .shape = shape_b, .rank = 1, .data = "123456", .bytes = 6},
    {.name = "scalar", .name_length = 6, .dtype = "F64", .rank = 0, .data = "ABCDEFGH", .bytes = 8},
};
enum { N_TENSORS = 4 };

static int set_up(void **state)
{
    strcpy(folder, "/tmp/tensorcast-writer-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/out", folder);
    memset(&error, 0, sizeof error);
    return 0;
}

static size_t entries(void)
{
    size_t n = 0;
    DIR *dir = opendir(folder);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 2;
}

static int tear_down(void **state)
{
    shell("rm -rf '%s'", folder);
    return 0;
}

static size_t read_file(const char *name, char *out, size_t room)
{
    FILE *file = fopen(name, "rb");
    assert_non_null(file);
    size_t n = fread(out, 1, room, file);
    fclose(file);
    return n;
}

static void write_text(const char *name, const char *text)
{
    FILE *file = fopen(name, "wb");
    fputs(text, file);
    fclose(file);
}

static bool stop_at_once(void)
{
    return true;
}

TEST_IN(header_and_data_are_in_view_order_without_gaps, set_up, tear_down)
{
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                                 "\"w\":{\"dtype\":\"U8\",\"shape\":[2,3],\"data_offsets\":[0,6]},"
                                 "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[6,6]},"
                                 "\"a\\\"\\n\xc3\xa9\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[6,12]},"
                                 "\"scalar\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[12,20]}}";
    char bytes[1000];
    uint64_t length;
    assert_int_equal(safetensors_writer_write(path, tensors, N_TENSORS, NULL, &error), 0);
    size_t n = read_file(path, bytes, sizeof bytes);
    memcpy(&length, bytes, sizeof length);
    assert_int_equal(length % 8, 0);
    assert_int_equal(n, 8 + length + 20);
    assert_memory_equal(bytes + 8, header, sizeof header - 1);
    for (size_t i = sizeof header - 1; i < length; i++)
        assert_int_equal(bytes[8 + i], ' ');
    assert_memory_equal(bytes + 8 + length, "abcdef123456ABCDEFGH", 20);
    assert_int_equal(entries(), 1);
}

TEST_IN(no_tensors_make_a_valid_file_too, set_up, tear_down)
{
    char bytes[100];
    assert_int_equal(safetensors_writer_write(path, NULL, 0, NULL, &error), 0);
    size_t n = read_file(path, bytes, sizeof bytes);
    assert_int_equal(n, 8 + 32);
    assert_int_equal(bytes[0], 32);
}

TEST_IN(an_old_file_is_replaced_and_keeps_its_mode, set_up, tear_down)
{
    struct stat found;
    write_text(path, "old");
    chmod(path, 0640);
    assert_int_equal(safetensors_writer_write(path, tensors, 1, NULL, &error), 0);
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_mode & 07777, 0640);
    assert_true(found.st_size > 8);
    assert_int_equal(entries(), 1);
}

TEST_IN(a_new_file_obeys_the_umask, set_up, tear_down)
{
    struct stat found;
    mode_t old = umask(027);
    assert_int_equal(safetensors_writer_write(path, tensors, 1, NULL, &error), 0);
    umask(old);
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_mode & 07777, 0640);
}

TEST_IN(an_interrupted_write_leaves_the_old_file_and_nothing_else, set_up, tear_down)
{
    char bytes[10] = "";
    write_text(path, "old");
    assert_int_equal(safetensors_writer_write(path, tensors, N_TENSORS, stop_at_once, &error), -1);
    assert_int_equal(error.code, ERROR_CANCELLED);
    assert_int_equal(read_file(path, bytes, sizeof bytes), 3);
    assert_string_equal(bytes, "old");
    assert_int_equal(entries(), 1);
}

TEST_IN(a_missing_folder_is_named_before_and_while_writing, set_up, tear_down)
{
    char missing[160];
    snprintf(missing, sizeof missing, "%s/no-folder/out", folder);
    assert_int_equal(out_file_check(missing, &error), -1);
    assert_int_equal(error.code, ERROR_NOT_FOUND);
    assert_non_null(strstr(error.message, "no-folder"));
    assert_int_equal(safetensors_writer_write(missing, tensors, 1, NULL, &error), -1);
    assert_int_equal(entries(), 0);
}

TEST_IN(a_folder_is_not_overwritten, set_up, tear_down)
{
    assert_int_equal(out_file_check(folder, &error), -1);
    assert_non_null(strstr(error.message, folder));
}

TEST_IN(the_check_changes_nothing, set_up, tear_down)
{
    assert_int_equal(out_file_check(path, &error), 0);
    assert_int_equal(entries(), 0);
}

TEST_IN(a_symbolic_link_stays_and_its_target_changes, set_up, tear_down)
{
    char link[128], bytes[1000];
    struct stat found;
    snprintf(link, sizeof link, "%s/link", folder);
    write_text(path, "old");
    assert_int_equal(symlink("out", link), 0);
    assert_int_equal(safetensors_writer_write(link, tensors, 1, NULL, &error), 0);
    assert_int_equal(lstat(link, &found), 0);
    assert_true(S_ISLNK(found.st_mode));
    assert_true(read_file(path, bytes, sizeof bytes) > 8);
    assert_int_equal(entries(), 2);
}

TEST_IN(a_device_is_written_and_not_replaced, set_up, tear_down)
{
    struct stat found;
    assert_int_equal(safetensors_writer_write("/dev/null", tensors, N_TENSORS, NULL, &error), 0);
    assert_int_equal(stat("/dev/null", &found), 0);
    assert_true(S_ISCHR(found.st_mode));
}

TEST_IN(a_full_disk_is_told, set_up, tear_down)
{
    assert_int_equal(safetensors_writer_write("/dev/full", tensors, N_TENSORS, NULL, &error), -1);
    assert_int_equal(error.code, ERROR_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(error.message, "/dev/full"));
}

TEST_IN(tensors_of_every_size_arrive_whole, set_up, tear_down)
{
    enum { N = 1000, BIG = 40 << 20 };
    static struct report_json_tensor many[N + 2];
    static char names[N][8];
    static uint64_t small_shape[] = {3}, big_shape[] = {BIG}, columns_shape[] = {BIG / 4, 3}, columns_strides[] = {4, 1};
    char *big = malloc(BIG), *got = malloc(2 * BIG);
    uint64_t length;
    for (size_t i = 0; i < BIG; i++)
        big[i] = (char)(i * 2654435761u >> 13);
    for (size_t i = 0; i < N; i++) {
        int name_length = snprintf(names[i], sizeof names[i], "t%zu", i);
        many[i] = (struct report_json_tensor){.name = names[i],
                                              .name_length = (size_t)name_length,
                                              .dtype = "U8",
                                              .shape = small_shape,
                                              .rank = 1,
                                              .bytes = 3,
                                              .data = big + i};
    }
    many[N] = (struct report_json_tensor){
        .name = "big", .name_length = 3, .dtype = "U8", .shape = big_shape, .rank = 1, .bytes = BIG, .data = big};
    many[N + 1] = (struct report_json_tensor){.name = "columns",
                                              .name_length = 7,
                                              .dtype = "U8",
                                              .shape = columns_shape,
                                              .rank = 2,
                                              .bytes = BIG / 4 * 3,
                                              .strides = columns_strides,
                                              .data = big};
    assert_int_equal(safetensors_writer_write(path, many, N + 2, NULL, &error), 0);
    size_t n = read_file(path, got, 2 * BIG);
    memcpy(&length, got, sizeof length);
    assert_int_equal(n, 8 + length + 3 * N + BIG + BIG / 4 * 3);
    for (size_t i = 0; i < N; i++)
        assert_memory_equal(got + 8 + length + 3 * i, big + i, 3);
    assert_true(memcmp(got + 8 + length + 3 * N, big, BIG) == 0);
    const char *columns = got + 8 + length + 3 * N + BIG;
    for (size_t i = 0; i < BIG / 4; i++)
        assert_true(memcmp(columns + 3 * i, big + 4 * i, 3) == 0);
    free(big);
    free(got);
}

TEST_IN(a_header_beyond_the_formats_limit_is_refused, set_up, tear_down)
{
    enum { NAME = 50000100 };
    char *name = malloc(NAME);
    size_t length;
    memset(name, 'n', NAME);
    const struct report_json_tensor one[] = {{.name = name, .name_length = NAME, .dtype = "U8", .bytes = 1, .data = ""},
                                             {.name = name, .name_length = NAME - 1, .dtype = "U8", .bytes = 1, .data = ""}};
    char *header = safetensors_writer_header(one, 1, &length, &error);
    assert_non_null(header);
    free(header);
    assert_null(safetensors_writer_header(one, 2, &length, &error));
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    free(name);
}
