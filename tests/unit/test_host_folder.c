/* A host's folder: what is appended is there after a crash at any moment, and the manifest says so. A crash is a copy of the
 * folder, opened again. */
#include "tests/support/unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activations/host_manifest.h"
#include "activations/host_private.h"
#include "activations/host_registry.h"
#include "activations/segment_journal.h"
#include "activations/segment_sum.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "tests/support/activation_cases.h"
#include "tests/support/shell.h"

static struct error error;
static char root[64], host[96];

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/test_host_folder_XXXXXX");
    assert_non_null(mkdtemp(root));
    snprintf(host, sizeof host, "%s/acts/host_003", root);
    return 0;
}

static int remove_root(void **state)
{
    (void)state;
    shell("rm -rf %s", root);
    return 0;
}

/* --- what is in it --- */

struct counted {
    uint32_t samples[256];
    size_t n;
};

static int count(void *data, uint32_t sample, struct error *failure)
{
    struct counted *counted = data;
    (void)failure;
    counted->samples[counted->n++] = sample;
    return 0;
}

static int count_listed(void *data, uint32_t segment, uint32_t sample, struct error *failure)
{
    (void)segment;
    return count(data, sample, failure);
}

/* Each segment of the manifest is as the file itself tells, and nothing else lies there. */
static size_t assert_true_folder(void)
{
    struct host_manifest manifest = {0};
    struct counted listed = {0}, found = {0};
    bool is_there;
    int fd = open(host, O_RDONLY | O_DIRECTORY);
    assert_int_equal(host_manifest_read(&manifest, 3, fd, &is_there, count_listed, &listed, &error), 0);
    for (size_t i = 0; i < manifest.n_segments; i++) {
        const struct manifest_segment *segment = &manifest.segments[i];
        struct segment_facts facts;
        char *entry = segment_describe(fd, segment->number, &facts, count, &found, &error);
        assert_non_null(entry);
        assert_int_equal(strlen(entry), segment->text_bytes);
        assert_memory_equal(entry, segment->text, segment->text_bytes);
        free(entry);
    }
    size_t n_files = 0;
    DIR *directory = fdopendir(fd);
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;)
        n_files += entry->d_name[0] != '.';
    assert_int_equal(n_files, manifest.n_segments + is_there);
    closedir(directory);
    assert_int_equal(listed.n, found.n);
    host_manifest_fini(&manifest);
    return found.n;
}

static void assert_holds(uint32_t first, uint32_t n)
{
    struct host_folder *folder = case_folder_open(root, 4096);
    struct host_resume resume = host_folder_resume(folder);
    assert_int_equal(resume.n_samples, n);
    assert_int_equal(resume.has_samples, n > 0);
    if (n)
        assert_int_equal(resume.last_sample, first + n - 1);
    host_folder_close(folder);
    assert_int_equal(assert_true_folder(), n);
}

/* --- the tests --- */

TEST_IN(samples_are_sealed_into_segments_that_say_what_they_hold, make_root, remove_root)
{
    struct host_folder *folder = case_folder_open(root, 4096);
    assert_int_equal(host_folder_resume(folder).next_segment, 1);
    for (uint32_t id = 0; id < 40; id++)
        case_folder_append(folder, id, id % 5);
    assert_true(host_folder_resume(folder).n_segments > 2);
    case_folder_seal(folder, true);
    uint64_t on_disk = host_folder_disk_bytes(folder), bytes = host_folder_resume(folder).bytes;
    assert_in_range(on_disk, bytes, bytes + (64 << 10));
    host_folder_close(folder);
    assert_holds(0, 40);
}

TEST_IN(a_sample_is_taken_once_and_one_that_fails_leaves_nothing, make_root, remove_root)
{
    struct host_folder *folder = case_folder_open(root, 4096);
    struct case_sample made;
    case_folder_append(folder, 7, 3);
    case_sample_make(&made, 7, 3);
    assert_int_equal(host_folder_begin(folder, &made.sample, UINT64_MAX, &error), -1);
    assert_string_equal(error.reason, "SAMPLE_TWICE");
    free(made.bytes);
    case_sample_make(&made, 8, 30);
    assert_int_equal(host_folder_begin(folder, &made.sample, UINT64_MAX, &error), 0);
    assert_int_equal(host_folder_write(folder, made.bytes, 500, &error), 0);
    host_folder_drop(folder);
    free(made.bytes);
    case_folder_append(folder, 8, 2);
    case_folder_seal(folder, true);
    host_folder_close(folder);
    assert_holds(7, 2);
}

TEST_IN(what_is_committed_is_there_after_a_crash_and_the_rest_may_be_gone, make_root, remove_root)
{
    struct host_folder *folder = case_folder_open(root, 1 << 20);
    for (uint32_t id = 0; id < 6; id++)
        case_folder_append(folder, id, 4);
    assert_int_equal(host_folder_commit(folder, &error), 0);
    case_folder_append(folder, 6, 4);
    host_folder_close(folder); /* as the end of the process does */
    assert_holds(0, 6);
    folder = case_folder_open(root, 1 << 20);
    case_folder_append(folder, 6, 400);
    case_folder_seal(folder, true);
    host_folder_close(folder);
    assert_holds(0, 7);
}

TEST_IN(a_crash_at_any_step_of_sealing_is_made_good, make_root, remove_root)
{
    /* what lies in the folder then, of the open segment, its journal, a copy, the sealed one and the manifest */
    static const char *const leave[] = {
        "mv %1$s/segment_000001.safetensors %1$s/segment_000001.open; rm %1$s/manifest.json", /* before the rename */
        "cp %1$s/segment_000001.safetensors %1$s/segment_000001.open; rm %1$s/manifest.json", /* after, when copied */
        "rm %1$s/manifest.json",                                                              /* after it */
        "mv %1$s/manifest.json %1$s/manifest.json.new",                                       /* before its own */
        "head -c 99 %1$s/segment_000001.safetensors > %1$s/segment_000001.copy",              /* half a copy */
        "true",
    };
    for (size_t i = 0; i < sizeof leave / sizeof leave[0]; i++) {
        char command[512];
        struct host_folder *folder = case_folder_open(root, 1 << 20);
        for (uint32_t id = 0; id < 9; id++)
            case_folder_append(folder, id, 800);
        assert_int_equal(host_folder_commit(folder, &error), 0);
        shell("cp %s/segment_000001.journal %s/../kept", host, host);
        case_folder_seal(folder, true);
        host_folder_close(folder);
        snprintf(command, sizeof command, leave[i], host);
        shell("%s; mv %s/../kept %s/segment_000001.journal", command, host, host);
        assert_holds(0, 9);
        shell("rm -rf %s/acts", root);
    }
}

TEST_IN(a_file_that_nobody_made_durable_is_removed, make_root, remove_root)
{
    struct host_folder *folder = case_folder_open(root, 1 << 20);
    case_folder_append(folder, 1, 3);
    case_folder_seal(folder, true);
    host_folder_close(folder);
    shell("echo x > %s/segment_000002.open; echo y > %s/segment_000003.journal; echo z > %s/segment_000004.open; echo "
          "TCACTJ01 > "
          "%s/segment_000004.journal",
          host, host, host, host);
    assert_holds(1, 1);
}

TEST_IN(a_lost_manifest_is_made_anew_with_its_texts, make_root, remove_root)
{
    struct host_folder *folder = case_folder_open(root, 4096);
    for (uint32_t id = 0; id < 20; id++)
        case_folder_append(folder, id, 3);
    case_folder_seal(folder, true);
    host_folder_close(folder);
    shell("cp %s/manifest.json %s/before; rm %s/manifest.json", host, root, host);
    assert_holds(0, 20);
    shell("cmp %s/before %s/manifest.json", root, host);
}

static void assert_refused(const char *reason, const char *naming)
{
    struct host_folder *folder;
    const char *roots[] = {root};
    char path[96];
    snprintf(path, sizeof path, "%s/acts", root);
    const struct host_folder_options options = {.roots = {roots, 1}, .path = path, .host = 3, .segment_bytes = 4096};
    assert_int_equal(host_folder_open(&options, &folder, &error), -1);
    assert_string_equal(error.reason, reason);
    assert_non_null(strstr(error.message, naming));
}

/* A sample without a byte lies inside of every file, wherever its data are said to begin. */
TEST_IN(a_journal_that_leaves_room_for_a_header_of_terabytes_is_refused, make_root, remove_root)
{
    unsigned char head[SEGMENT_JOURNAL_HEAD_BYTES];
    uint64_t shape = 0;
    struct sample_tensor tensor = {.layer = 1, .dtype = DTYPE_F32, .shape = &shape, .rank = 1};
    struct sample sample = {.id = 7, .n_tensors = 1};
    struct journal_text text = {0};
    char path[128];
    assert_int_equal(sample_check(&sample, &tensor, &error), 0);
    segment_journal_head((uint64_t)1 << 42, head);
    segment_journal_add(&text, &sample, 0);
    shell("mkdir -p %s; touch %s/segment_000001.open", host, host);
    snprintf(path, sizeof path, "%s/segment_000001.journal", host);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(head, 1, sizeof head, file), sizeof head);
    assert_int_equal(fwrite(text.bytes, 1, text.length, file), text.length);
    assert_int_equal(fclose(file), 0);
    free(text.bytes);
    assert_refused("BAD_JOURNAL", "segment_000001.journal");
}

TEST_IN(a_segment_whose_header_would_have_more_than_64_mib_is_sealed_before, make_root, remove_root)
{
    static const uint64_t shape[SAMPLE_MAX_RANK]; /* empty arrays, of the longest shapes */
    struct sample_tensor *tensors = calloc(SAMPLE_MAX_TENSORS, sizeof *tensors);
    for (uint32_t i = 0; i < SAMPLE_MAX_TENSORS; i++)
        tensors[i] = (struct sample_tensor){.layer = i, .rank = SAMPLE_MAX_RANK, .shape = shape, .dtype = DTYPE_F32};
    for (uint32_t more = 0; more < 2; more++) {
        struct host_folder *folder = case_folder_open(root, 1 << 30);
        const struct sample of_none = {.n_tensors = 0}, of_one = {.n_tensors = 1, .tensors = tensors};
        case_folder_append(folder, 10 * more, 3);
        uint64_t head = contents_head_bytes(segment_contents(folder->open)) + contents_head_bytes_of(&of_none);
        uint64_t each = contents_head_bytes_of(&of_one) - contents_head_bytes_of(&of_none);
        struct sample sample = {.id = 10 * more + 1, .n_tensors = (CONTENTS_MAX_HEAD_BYTES - head) / each + more};
        assert_int_equal(sample_check(&sample, tensors, &error), 0);
        assert_int_equal(host_folder_begin(folder, &sample, UINT64_MAX, &error), 0);
        assert_int_equal(segment_contents(folder->open)->n_samples, more ? 0 : 1);
        host_folder_drop(folder);
        case_folder_seal(folder, true);
        host_folder_close(folder);
    }
    free(tensors);
    assert_int_equal(assert_true_folder(), 2);
}

TEST_IN(a_host_has_999999_segments_and_not_one_more, make_root, remove_root)
{
    struct case_sample made;
    struct host_folder *folder = case_folder_open(root, 4096);
    folder->next_segment = ACTIVATION_MAX_SEGMENT;
    case_folder_append(folder, 1, 3);
    case_folder_seal(folder, true);
    case_sample_make(&made, 2, 3);
    assert_int_equal(host_folder_begin(folder, &made.sample, UINT64_MAX, &error), -1);
    assert_int_equal(error.code, ERROR_RESOURCE_EXHAUSTED);
    assert_string_equal(error.reason, "TOO_MANY_SEGMENTS");
    host_folder_close(folder);
    folder = case_folder_open(root, 4096); /* and so is a host that was closed meanwhile */
    assert_int_equal(host_folder_begin(folder, &made.sample, UINT64_MAX, &error), -1);
    assert_string_equal(error.reason, "TOO_MANY_SEGMENTS");
    host_folder_close(folder);
    free(made.bytes);
    assert_int_equal(assert_true_folder(), 1);
}

TEST_IN(a_folder_that_lacks_what_its_manifest_says_is_refused, make_root, remove_root)
{
    struct host_folder *folder = case_folder_open(root, 4096);
    for (uint32_t id = 0; id < 20; id++)
        case_folder_append(folder, id, 3);
    case_folder_seal(folder, true);
    assert_refused("WRITER_EXISTS", "host 3");
    host_folder_close(folder);
    shell("mv %s/segment_000002.safetensors %s/aside", host, root);
    assert_refused("SEGMENT_GONE", "segment_000002.safetensors");
    shell("head -c 100 %s/aside > %s/segment_000002.safetensors", root, host);
    assert_refused("SEGMENT_CHANGED", "segment_000002.safetensors");
    shell("mv %s/aside %s/segment_000002.safetensors; cp %s/segment_000001.safetensors %s/segment_000099.safetensors", root,
          host, host, host);
    assert_refused("SAMPLE_TWICE", "segment_000099.safetensors");
    shell("rm %s/segment_000099.safetensors; sed -i s/tensorcast/x/ %s/manifest.json", host, host);
    assert_refused("BAD_MANIFEST", "manifest.json");
    shell("rm %s/manifest.json; mkfifo %s/segment_000098.safetensors", host, host);
    assert_refused("NOT_A_SEGMENT", "segment_000098.safetensors");
}

/* Nothing is removed by a refusal, and nothing else is lost by doing what it says. */
TEST_IN(a_journal_or_a_segment_that_somebody_removed_is_said_and_not_gone_on_without, make_root, remove_root)
{
    static const char *const suffixes[] = {"open", "journal"};
    for (size_t i = 0; i < 2; i++) {
        const char *gone = suffixes[i], *left = suffixes[1 - i];
        char name[64];
        struct host_folder *folder = case_folder_open(root, 1 << 20);
        case_folder_append(folder, 1, 3);
        case_folder_seal(folder, true);
        for (uint32_t id = 2; id < 6; id++)
            case_folder_append(folder, id, 4);
        assert_int_equal(host_folder_commit(folder, &error), 0);
        shell("mv %s/segment_000002.%s %s/aside", host, gone, root);
        host_folder_close(folder); /* as the end of the process does */
        snprintf(name, sizeof name, "segment_000002.%s", gone);
        assert_refused("SEGMENT_GONE", name);
        snprintf(name, sizeof name, "segment_000002.%s", left);
        assert_refused("SEGMENT_GONE", name);
        shell("mv %s/aside %s/segment_000002.%s; cp -r %s/acts %s/copy", root, host, gone, root, root);
        assert_holds(1, 5);
        shell("rm -r %s/acts; mv %s/copy %s/acts; rm %s/segment_000002.*", root, root, root, host);
        assert_holds(1, 1);
        shell("rm -r %s/acts", root);
    }
}

TEST_IN(a_store_lies_below_the_roots_and_no_link_leads_out, make_root, remove_root)
{
    const char *roots[] = {root};
    const struct store_roots some = {roots, 1}, none = {NULL, 0};
    char path[128], out[64] = "/tmp/test_host_folder_out_XXXXXX";
    assert_non_null(mkdtemp(out));
    snprintf(path, sizeof path, "%s/a/b/c", root);
    assert_int_equal(store_path_open(&some, path, false, &error), -1);
    int fd = store_path_open(&some, path, true, &error);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(store_path_open(&none, path, true, &error), -1);
    assert_int_equal(error.code, ERROR_PERMISSION_DENIED);
    shell("ln -s %s %s/link; ln -s %s %s/a/host_003", out, root, out, root);
    snprintf(path, sizeof path, "%s/link/acts", root);
    assert_int_equal(store_path_open(&some, path, true, &error), -1);
    assert_string_equal(error.reason, "OUTSIDE_ACTIVATION_ROOTS");
    snprintf(path, sizeof path, "%s/acts", out);
    assert_int_equal(store_path_open(&some, path, true, &error), -1);
    assert_int_not_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/a", root);
    assert_int_equal(store_path_open_host(&some, path, 3, true, &error), -1);
    assert_null(store_path_parse("disk:relative", &error));
    assert_null(store_path_parse("disk:/a/../b", &error));
    assert_null(store_path_parse("gs://a/b", &error));
    char *parsed = store_path_parse("disk:/a//b/./c/", &error);
    assert_string_equal(parsed, "/a/b/c");
    free(parsed);
    shell("rm -rf %s", out);
}

TEST_IN(the_folder_of_a_host_that_is_another_users_is_neither_read_nor_written, make_root, remove_root)
{
    const char *roots[] = {root};
    const struct store_roots some = {roots, 1};
    char path[96];
    if (geteuid() != 0) /* cannot give folders away */
        skip();
    snprintf(path, sizeof path, "%s/acts", root);
    host_folder_close(case_folder_open(root, 4096));
    shell("chown 4242 %s; chmod 777 %s", host, host);
    for (int makes = 0; makes < 2; makes++) {
        assert_int_equal(store_path_open_host(&some, path, 3, makes, &error), -1);
        assert_int_equal(error.code, ERROR_PERMISSION_DENIED);
        assert_string_equal(error.reason, "FOLDER_OF_ANOTHER_USER");
        assert_non_null(strstr(error.message, "4242"));
    }
    shell("chown 4242 %s; chown 0 %s", path, host); /* the folder around belongs to another user */
    int fd = store_path_open_host(&some, path, 3, true, &error);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(store_path_open_host(&some, path, 4, false, &error), -1);
    assert_int_equal(error.code, ERROR_NOT_FOUND);
}

TEST_IN(a_folder_takes_what_its_files_take_and_nothing_once_it_is_gone, make_root, remove_root)
{
    const char *roots[] = {root};
    const struct store_roots some = {roots, 1};
    char path[96];
    uint64_t bytes = 7;
    struct host_folder *folder = case_folder_open(root, 4096);
    snprintf(path, sizeof path, "%s/acts", root);
    for (uint32_t id = 0; id < 20; id++)
        case_folder_append(folder, id, 3);
    case_folder_seal(folder, true);
    uint64_t sealed = host_folder_resume(folder).bytes, counted = host_folder_disk_bytes(folder);
    host_folder_close(folder);
    host_folder_measure(&some, path, 3, &bytes);
    assert_in_range(bytes, sealed, counted);
    shell("mv %s %s/aside", host, root);
    host_folder_measure(&some, path, 3, &bytes);
    assert_int_equal(bytes, 0);
    bytes = 7;
    host_folder_measure(&(struct store_roots){NULL, 0}, path, 3, &bytes);
    assert_int_equal(bytes, 7);
}

TEST_IN(as_many_folders_as_64_are_made_and_one_more_is_not, make_root, remove_root)
{
    const char *roots[] = {root};
    const struct store_roots some = {roots, 1};
    char path[512];
    size_t used = (size_t)snprintf(path, sizeof path, "%s", root);
    for (int i = 0; i < 64; i++)
        used += (size_t)snprintf(path + used, sizeof path - used, "/d");
    int fd = store_path_open(&some, path, true, &error);
    assert_true(fd >= 0);
    close(fd);
    shell("rm -rf %s/d", root);
    snprintf(path + used, sizeof path - used, "/d");
    assert_int_equal(store_path_open(&some, path, true, &error), -1);
}

TEST_IN(a_path_of_a_store_has_at_most_1024_bytes, make_root, remove_root)
{
    char reference[1100] = "disk:/", *path = reference + 5;
    memset(path + 1, 'a', 1024);
    assert_null(store_path_parse(reference, &error));
    assert_non_null(strstr(error.message, "1024"));
    path[1024] = '\0';
    char *parsed = store_path_parse(reference, &error);
    assert_string_equal(parsed, path);
    free(parsed);
}

static int count_uploaded(void *data, const struct sealed_segment *segment, struct error *failure)
{
    (void)failure;
    *(size_t *)data += segment->uploaded && strcmp(segment->uploaded, "gs://b/\"x\"/1") == 0;
    return 0;
}

static struct host_folder *reopen(struct host_folder *folder, bool is_local)
{
    struct sealed_segment segment;
    host_folder_close(folder);
    folder = case_folder_open(root, 1024);
    assert_true(host_folder_find(folder, 1, &segment));
    assert_int_equal(segment.is_local, is_local);
    return folder;
}

TEST_IN(a_file_that_was_uploaded_goes_and_its_samples_stay_known, make_root, remove_root)
{
    struct host_folder *folder = case_folder_open(root, 1024);
    const uint32_t numbers[] = {1, 2, 77};
    size_t n_uploaded = 0;
    for (uint32_t id = 0; id < 4; id++) {
        case_folder_append(folder, id, 4);
        case_folder_seal(folder, false);
    }
    case_folder_seal(folder, true);
    const struct host_resume before = host_folder_resume(folder);
    assert_true(before.n_segments >= 2);
    assert_int_equal(host_folder_uploaded(folder, 1, "gs://b/\"x\"/1", &error), 0);
    shell("cp %s/segment_000001.safetensors %s/kept", host, root);
    folder = reopen(folder, true);
    assert_int_equal(host_folder_drop_local(folder, numbers, 3, &error), 0); /* the others are nowhere else */
    assert_true(host_folder_resume(folder).bytes < before.bytes);
    shell("test ! -e %s/segment_000001.safetensors -a -e %s/segment_000002.safetensors", host, host);
    folder = reopen(folder, false);
    assert_int_equal(host_folder_resume(folder).n_samples, before.n_samples);
    shell("cp %s/kept %s/segment_000001.safetensors", root, host);
    folder = reopen(folder, true);
    assert_int_equal(host_folder_resume(folder).bytes, before.bytes);
    assert_int_equal(host_folder_each(folder, count_uploaded, &n_uploaded, &error), 0);
    assert_int_equal(n_uploaded, 1);
    assert_int_equal(host_folder_forget_uploads(folder, &error), 0);
    folder = reopen(folder, true);
    assert_int_equal(host_folder_each(folder, count_uploaded, &n_uploaded, &error), 0);
    assert_int_equal(n_uploaded, 1); /* none more */
    host_folder_close(folder);
}

TEST_IN(folders_are_remembered_until_they_are_forgotten, make_root, remove_root)
{
    char path[] = "/data/acts";
    char upload[] = "gs://bucket/a \"b\"";
    const struct known_host one = {path, 3, {upload, true}}, two = {.path = path, .host = 4};
    struct known_host found;
    size_t n;
    assert_int_equal(host_registry_add(root, &one, &error), 0);
    assert_int_equal(host_registry_add(root, &one, &error), 0);
    assert_int_equal(host_registry_add(root, &two, &error), 0);
    shell("echo '{' > %s/activations/$(printf %%064d 7).json", root);
    host_registry_remove(root, &two);
    struct known_host *list = host_registry_list(root, &n);
    assert_int_equal(n, 1);
    assert_string_equal(list[0].path, path);
    assert_int_equal(list[0].host, 3);
    known_host_fini(&list[0]);
    free(list);
    assert_true(host_registry_find(root, path, 3, &found));
    assert_string_equal(found.upload.reference, upload);
    assert_true(found.upload.drop_local);
    known_host_fini(&found);
    assert_false(host_registry_find(root, path, 4, &found));
}
