/* Files that another process opens and reads: this program again, which hangs where a test wants it to. No FUSE is needed:
 * the process is asked for by the number of a mount that does not exist. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "source/disk/mount_child.h"
#include "source/disk/mount_connection.h"
#include "source/disk/mounts.h"
#include "source/disk/source_forward.h"
#include "tests/support/model_dir.h"

#undef fail
#include <cmocka.h>

enum { FILE_BYTES = 5 * 1024 * 1024 + 333, MOUNT = 0x5 };

static char root[MODEL_PATH_CHARS];
static uint64_t next_mount = MOUNT; /* one for each test, so that none sees what another has broken */
static unsigned char *content;
static bool is_other; /* in the other process */

/* In place of the C library's: in the other process, a file whose name begins with "hang" is never read. */
ssize_t preadv(int fd, const struct iovec *iov, int n_iov, off_t offset)
{
    ssize_t (*real)(int, const struct iovec *, int, off_t) =
        (ssize_t(*)(int, const struct iovec *, int, off_t))dlsym(RTLD_NEXT, "preadv");
    char link[64], name[MODEL_PATH_CHARS + 64] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, name, sizeof name - 1) > 0 && strstr(name, "/hang"))
        pause();
    return real(fd, iov, n_iov, offset);
}

/* Likewise, what "stuck" looks like once there is a file "hang.now" beside it. */
int statx(int fd, const char *path, int flags, unsigned mask, struct statx *status)
{
    int (*real)(int, const char *, int, unsigned, struct statx *) =
        (int (*)(int, const char *, int, unsigned, struct statx *))dlsym(RTLD_NEXT, "statx");
    char link[64], name[MODEL_PATH_CHARS + 64] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    char *last = readlink(link, name, sizeof name - 1) > 0 ? strstr(name, "/stuck") : NULL;
    if (last) {
        strcpy(last, "/hang.now");
        if (access(name, F_OK) == 0)
            pause();
    }
    return real(fd, path, flags, mask, status);
}

static int create(void **state)
{
    (void)state;
    model_dir_create(root);
    content = memory_alloc(FILE_BYTES);
    for (size_t i = 0; i < FILE_BYTES; i++)
        content[i] = (unsigned char)(i * 2654435761u >> 13);
    model_dir_write(root, "a", content, FILE_BYTES);
    model_dir_write(root, "hang", content, FILE_BYTES);
    model_dir_write(root, "stuck", content, 1);
    model_dir_mkdir(root, "folder");
    return 0;
}

static int destroy(void **state)
{
    (void)state;
    free(content);
    model_dir_destroy(root);
    return 0;
}

struct scene {
    struct source_disk disk;
    struct source_file file;
    struct source_disk_file opened;
    uint64_t mount;
    struct error error;
};

static void open_scene(struct scene *scene, const char *path)
{
    const char *const roots[] = {root};
    *scene = (struct scene){.opened = {.fd = -1, .direct_fd = DIRECT_NOT_OPEN}, .mount = next_mount};
    next_mount = next_mount * 2 + 1;
    scene->disk.base.uid = getuid();
    scene->disk.confined = true;
    scene->disk.path = memory_copy_text(path);
    trusted_roots_init(&scene->disk.roots, roots, 1);
}

static void close_scene(struct scene *scene)
{
    source_forward_close(&scene->disk);
    trusted_roots_fini(&scene->disk.roots);
    free(scene->disk.path);
}

static int open_one(struct scene *scene, const char *name)
{
    return source_forward_open_file(&scene->disk, scene->mount, name, &scene->file, &scene->opened, &scene->error);
}

static int read_all(struct scene *scene, unsigned char *bytes, const struct cancel *cancel, bool direct)
{
    struct iovec iov[3] = {{bytes, 1000}, {bytes + 1000, 0}, {bytes + 1000, FILE_BYTES - 1000}};
    struct source_read read = {.iov = iov, .n_iov = 3, .cancel = cancel, .uid = scene->disk.base.uid, .direct = direct};
    return source_forward_read(&scene->disk, &scene->opened, &read, &scene->error);
}

static bool is_late(void *until_ns)
{
    return clock_now_ns() >= *(uint64_t *)until_ns;
}

static pid_t pid_of(const struct scene *scene)
{
    struct error error;
    struct mount_process *process = mount_process_get(scene->mount, &error);
    assert_non_null(process);
    pid_t pid = process->pid;
    mount_process_unref(process);
    return pid;
}

static void kill_and_wait(pid_t pid)
{
    siginfo_t info;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
}

static void another_process_opens_lists_and_reads(void **state)
{
    struct scene scene;
    struct stat status;
    char **names, path[MODEL_PATH_CHARS + 8];
    size_t n_names;
    unsigned char *bytes = memory_alloc(FILE_BYTES);
    (void)state;
    open_scene(&scene, root);
    assert_int_equal(source_forward_open(&scene.disk, scene.mount, &scene.error), 0);
    assert_false(scene.disk.base.is_single_file);
    assert_int_equal(source_forward_list(&scene.disk, scene.mount, &names, &n_names, &scene.error), 0);
    static const char *const expected[] = {".", "..", "a", "folder", "hang", "stuck"};
    static const struct source_extent extents[] = {{5000, 10}, {100, 20}};
    assert_int_equal(n_names, 6);
    for (size_t i = 0; i < n_names; i++) {
        assert_string_equal(names[i], expected[i]);
        free(names[i]);
    }
    free(names);
    assert_int_equal(open_one(&scene, "a"), 0);
    snprintf(path, sizeof path, "%s/a", root);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(scene.file.size_bytes, FILE_BYTES);
    assert_int_equal(scene.file.identity.inode, status.st_ino);
    assert_int_equal(scene.opened.fd, -1);
    for (int direct = 0; direct < 2; direct++) {
        memset(bytes, 0, FILE_BYTES);
        assert_int_equal(read_all(&scene, bytes, NULL, direct), 0);
        assert_memory_equal(bytes, content, FILE_BYTES);
    }
    assert_int_equal(source_forward_resident_bytes(&scene.disk, &scene.opened, extents, 2), 30);
    assert_int_equal(source_forward_check(&scene.disk, &scene.opened, MOUNT_CHECK_UNCHANGED, NULL, &scene.error), 0);
    close_scene(&scene);
    free(bytes);
}

static void a_single_file_is_told_from_a_folder(void **state)
{
    struct scene scene;
    char path[MODEL_PATH_CHARS + 8];
    (void)state;
    snprintf(path, sizeof path, "%s/a", root);
    open_scene(&scene, path);
    assert_int_equal(source_forward_open(&scene.disk, scene.mount, &scene.error), 0);
    assert_true(scene.disk.base.is_single_file);
    close_scene(&scene);
}

static void a_long_listing_comes_in_parts(void **state)
{
    enum { N_FILES = 18000, NAME_CHARS = 250 };
    struct scene scene;
    char folder[MODEL_PATH_CHARS + 16], name[NAME_CHARS + 1], first[NAME_CHARS + 1], **names;
    size_t n_names;
    (void)state;
    model_dir_mkdir(root, "folder/long");
    snprintf(folder, sizeof folder, "%s/folder/long", root);
    int at = open(folder, O_DIRECTORY | O_RDONLY);
    assert_true(at >= 0);
    for (int i = 0; i < N_FILES; i++) { /* of one file: thousands of them cost some file systems a second */
        snprintf(name, sizeof name, "%0*d", NAME_CHARS, i);
        assert_int_equal(i ? linkat(at, first, at, name, 0) : mknodat(at, name, S_IFREG | 0600, 0), 0);
        if (!i)
            memcpy(first, name, sizeof first);
    }
    open_scene(&scene, folder);
    assert_int_equal(source_forward_list(&scene.disk, scene.mount, &names, &n_names, &scene.error), 0);
    assert_int_equal(n_names, N_FILES + 2);
    for (size_t i = 0; i < n_names; i++) {
        assert_true(i < 2 || strtoull(names[i], NULL, 10) == i - 2);
        unlinkat(at, names[i], 0);
        free(names[i]);
    }
    free(names);
    close(at);
    close_scene(&scene);
}

static void errors_come_as_they_are(void **state)
{
    struct scene scene;
    (void)state;
    open_scene(&scene, root);
    assert_int_equal(open_one(&scene, "missing"), -1);
    assert_int_equal(scene.error.code, ERROR_NOT_FOUND);
    assert_non_null(strstr(scene.error.message, "missing"));
    assert_int_equal(open_one(&scene, "folder"), -1);
    assert_int_equal(scene.error.kind, ERROR_KIND_NOT_A_REGULAR_FILE);
    assert_int_equal(open_one(&scene, "../../etc/passwd"), -1);
    assert_int_equal(scene.error.code, ERROR_PERMISSION_DENIED);
    close_scene(&scene);
    open_scene(&scene, "/etc");
    assert_int_equal(source_forward_open(&scene.disk, scene.mount, &scene.error), -1);
    assert_string_equal(scene.error.reason, "OUTSIDE_TRUSTED_ROOTS");
    close_scene(&scene);
}

static void a_file_that_was_replaced_is_noticed(void **state)
{
    struct scene scene;
    char from[MODEL_PATH_CHARS + 8], to[MODEL_PATH_CHARS + 8];
    (void)state;
    model_dir_write(root, "folder/b", "1", 1);
    model_dir_write(root, "folder/c", "2", 1);
    snprintf(from, sizeof from, "%s/folder/c", root);
    snprintf(to, sizeof to, "%s/folder/b", root);
    open_scene(&scene, root);
    assert_int_equal(open_one(&scene, "folder/b"), 0);
    assert_int_equal(source_forward_check(&scene.disk, &scene.opened, MOUNT_CHECK_UNCHANGED, NULL, &scene.error), 0);
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(source_forward_check(&scene.disk, &scene.opened, MOUNT_CHECK_UNCHANGED, NULL, &scene.error), -1);
    assert_int_equal(scene.error.kind, ERROR_KIND_SOURCE_CHANGED);
    unlink(to);
    close_scene(&scene);
}

static void a_cancelled_read_ends_at_once_and_too_many_of_them_refuse_more(void **state)
{
    enum { GIVEN_UP = 16 }; /* half of MAX_GIVEN_UP, which is one user's share */
    struct scene scene;
    unsigned char *bytes = memory_alloc(FILE_BYTES);
    uint64_t until_ns = 0;
    const struct cancel at_once = {is_late, &until_ns}, late = {is_late, &(uint64_t){UINT64_MAX}};
    (void)state;
    open_scene(&scene, root);
    assert_int_equal(open_one(&scene, "hang"), 0);
    for (int i = 0; i < GIVEN_UP; i++) {
        assert_int_equal(read_all(&scene, bytes, &at_once, false), -1);
        if (scene.error.code != ERROR_CANCELLED)
            fail_msg("%d: %s", i, scene.error.message);
    }
    assert_int_equal(read_all(&scene, bytes, &late, false), -1);
    assert_string_equal(scene.error.reason, "NO_ANSWER");
    assert_non_null(strstr(scene.error.message, "16 requests"));
    struct scene other; /* somebody else still has a share */
    open_scene(&other, root);
    other.mount = scene.mount;
    other.disk.base.uid = getuid() + 1;
    assert_int_equal(open_one(&other, "a"), 0);
    assert_int_equal(read_all(&other, bytes, NULL, false), 0);
    close_scene(&other);
    close_scene(&scene);
    kill_and_wait(pid_of(&scene));
    free(bytes);
}

static void the_end_of_this_process_ends_a_wait(void **state)
{
    struct scene scene;
    unsigned char *bytes = memory_alloc(FILE_BYTES);
    uint64_t until_ns = 0;
    const struct cancel stop = {is_late, &until_ns};
    (void)state;
    open_scene(&scene, root);
    assert_int_equal(open_one(&scene, "hang"), 0);
    scene.disk.stop = &stop;
    assert_int_equal(read_all(&scene, bytes, NULL, false), -1);
    assert_string_equal(scene.error.reason, "DAEMON_STOPPING");
    close_scene(&scene);
    kill_and_wait(pid_of(&scene));
    free(bytes);
}

static void a_check_ends_when_it_is_cancelled(void **state)
{
    struct scene scene;
    char path[MODEL_PATH_CHARS + 16];
    uint64_t until_ns = 0;
    const struct cancel at_once = {is_late, &until_ns};
    (void)state;
    open_scene(&scene, root);
    assert_int_equal(open_one(&scene, "stuck"), 0);
    snprintf(path, sizeof path, "%s/hang.now", root);
    model_dir_write(root, "hang.now", "", 0);
    assert_int_equal(source_forward_check(&scene.disk, &scene.opened, MOUNT_CHECK_UNCHANGED, &at_once, &scene.error), -1);
    assert_int_equal(scene.error.code, ERROR_CANCELLED);
    assert_int_equal(unlink(path), 0);
    close_scene(&scene);
    kill_and_wait(pid_of(&scene));
}

struct killing {
    pid_t pid;
    uint64_t until_ns;
};

/* Asked every now and then while a read hangs. */
static bool kill_it(void *data)
{
    struct killing *killing = data;
    if (clock_now_ns() >= killing->until_ns && killing->pid)
        kill(killing->pid, SIGKILL);
    return false;
}

static void a_process_that_is_killed_fails_its_reads_and_another_one_is_started(void **state)
{
    struct scene scene;
    unsigned char *bytes = memory_alloc(FILE_BYTES);
    (void)state;
    open_scene(&scene, root);
    assert_int_equal(open_one(&scene, "hang"), 0);
    struct killing killing = {pid_of(&scene), 0};
    const struct cancel cancel = {kill_it, &killing};
    assert_int_equal(read_all(&scene, bytes, &cancel, false), -1);
    assert_int_equal(scene.error.code, ERROR_UNAVAILABLE);
    assert_string_equal(scene.error.reason, "MOUNT_PROCESS_ENDED");
    assert_int_equal(read_all(&scene, bytes, NULL, false), -1); /* it has the file open no more */
    source_forward_close(&scene.disk);
    assert_int_equal(open_one(&scene, "a"), 0);
    assert_int_equal(read_all(&scene, bytes, NULL, false), 0);
    assert_memory_equal(bytes, content, FILE_BYTES);
    assert_int_not_equal(pid_of(&scene), killing.pid);
    close_scene(&scene);
    free(bytes);
}

static void a_process_is_started_five_times_in_a_row_and_not_once_more(void **state)
{
    struct error error;
    uint64_t mount = next_mount;
    (void)state;
    next_mount = next_mount * 2 + 1;
    for (int i = 0; i < 5; i++) {
        struct mount_process *process = mount_process_get(mount, &error);
        assert_non_null(process);
        kill_and_wait(process->pid);
        mount_process_unref(process);
    }
    assert_null(mount_process_get(mount, &error));
    assert_int_equal(error.code, ERROR_UNAVAILABLE);
    assert_non_null(strstr(error.message, "5 times in a row"));
}

static void there_are_64_processes_and_unused_ones_make_room(void **state)
{
    struct mount_process *used[MOUNT_MAX_PROCESSES];
    struct error error;
    (void)state;
    for (size_t i = 0; i < MOUNT_MAX_PROCESSES; i++)
        assert_non_null(used[i] = mount_process_get((uint64_t)1 << 40 | i, &error));
    assert_null(mount_process_get((uint64_t)1 << 41, &error));
    assert_string_equal(error.reason, "TOO_MANY_MOUNTS");
    mount_process_unref(used[7]);
    struct mount_process *one_more = mount_process_get((uint64_t)1 << 41, &error);
    assert_non_null(one_more);
    assert_true(mount_process_get((uint64_t)1 << 40, &error) == used[0]); /* those in use are still there */
    mount_process_unref(used[0]);
    mount_process_unref(one_more);
    for (size_t i = 0; i < MOUNT_MAX_PROCESSES; i++)
        if (i != 7)
            mount_process_unref(used[i]);
}

static void a_user_has_half_of_the_connections_and_another_one_still_some(void **state)
{
    enum { SHARE = 32 };
    struct mount_connection *taken[SHARE];
    struct error error;
    uint64_t until_ns = 0;
    const struct cancel at_once = {is_late, &until_ns};
    const struct mount_wait patient = {.uid = 1000}, impatient = {.uid = 1000, .cancel = &at_once}, other = {.uid = 1001};
    struct mount_process *process = mount_process_get(next_mount, &error);
    (void)state;
    next_mount = next_mount * 2 + 1;
    assert_non_null(process);
    for (size_t i = 0; i < SHARE; i++)
        assert_non_null(taken[i] = mount_connection_take(process, &patient, &error));
    assert_null(mount_connection_take(process, &impatient, &error));
    assert_int_equal(error.code, ERROR_CANCELLED);
    struct mount_connection *of_other = mount_connection_take(process, &other, &error);
    assert_non_null(of_other);
    mount_connection_give(of_other);
    for (size_t i = 0; i < SHARE; i++)
        mount_connection_give(taken[i]);
    assert_true(process->n_connections <= 16);
    mount_process_unref(process);
    assert_int_equal(process->n_connections, 0); /* the table has it still: idle, and without their memory */
}

/* "socket", "/dev/null", ... of a process, one for each descriptor. */
static size_t count_descriptors(pid_t pid, const char *beginning)
{
    char path[64], link[MODEL_PATH_CHARS + 64];
    size_t count = 0;
    for (int fd = 0; fd < 256; fd++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
        ssize_t n_chars = readlink(path, link, sizeof link - 1);
        link[n_chars > 0 ? n_chars : 0] = '\0';
        count += n_chars > 0 && strncmp(link, beginning, strlen(beginning)) == 0;
    }
    return count;
}

static void the_process_has_no_descriptor_of_ours_and_no_secret_of_the_environment(void **state)
{
    struct scene scene;
    char path[MODEL_PATH_CHARS + 8], environment[4096] = "";
    (void)state;
    snprintf(path, sizeof path, "%s/a", root);
    int ours = open(path, O_RDONLY); /* not O_CLOEXEC */
    assert_true(ours >= 0);
    setenv("HF_TOKEN", "secret", 1);
    open_scene(&scene, root);
    assert_int_equal(source_forward_open(&scene.disk, scene.mount, &scene.error), 0);
    pid_t pid = pid_of(&scene);
    if (geteuid() == 0) { /* others may not look */
        assert_int_equal(count_descriptors(pid, "/dev/null"), 3);
        assert_int_equal(count_descriptors(pid, "socket:"), 2);
        assert_int_equal(count_descriptors(pid, root), 0);
        snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
        int fd = open(path, O_RDONLY);
        assert_true(fd >= 0 && read(fd, environment, sizeof environment - 1) >= 0);
        close(fd);
        assert_null(memmem(environment, sizeof environment, "HF_TOKEN", 8));
    }
    close_scene(&scene);
    close(ours);
}

static void nonsense_ends_the_connection_and_not_the_process(void **state)
{
    struct error error;
    struct mount_reply reply;
    const struct mount_wait wait = {.uid = getuid()};
    struct mount_process *process = mount_process_get(next_mount, &error);
    (void)state;
    next_mount = next_mount * 2 + 1;
    assert_non_null(process);
    static const struct mount_request requests[] = {
        {.op = MOUNT_OPS},
        {.op = MOUNT_OPEN, .text_bytes = MOUNT_MEMORY_BYTES + 1},
        {.op = MOUNT_READ, .slot = MOUNT_SLOTS},
    };
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        struct mount_request request = requests[i];
        struct mount_connection *connection = mount_connection_take(process, &wait, &error);
        assert_non_null(connection);
        assert_int_equal(mount_connection_ask(connection, &request, &reply, &error), -1);
        mount_connection_give(connection);
    }
    static const enum mount_op about_nothing[] = {MOUNT_LIST, MOUNT_OPEN_FILE, MOUNT_READ, MOUNT_RESIDENT,
                                                  MOUNT_CHECK_STILL};
    for (size_t i = 0; i < sizeof about_nothing / sizeof *about_nothing; i++) {
        struct mount_request request = {.op = about_nothing[i], .source = 99};
        struct mount_connection *connection = mount_connection_take(process, &wait, &error);
        assert_non_null(connection);
        assert_int_equal(mount_connection_ask(connection, &request, &reply, &error), -1);
        assert_string_equal(error.reason, "BAD_REQUEST");
        mount_connection_give(connection);
    }
    assert_false(mount_process_has_ended(process));
    mount_process_unref(process);
}

static void signals_that_are_for_the_daemon_do_not_end_it(void **state)
{
    struct scene scene;
    (void)state;
    open_scene(&scene, root);
    assert_int_equal(source_forward_open(&scene.disk, scene.mount, &scene.error), 0);
    pid_t pid = pid_of(&scene);
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(kill(pid, signals[i]), 0);
    assert_int_equal(open_one(&scene, "a"), 0);
    assert_int_equal(pid_of(&scene), pid);
    close_scene(&scene);
}

static void a_name_of_a_root_is_found_out_by_another_process(void **state)
{
    struct error error;
    char link[MODEL_PATH_CHARS + 8];
    (void)state;
    snprintf(link, sizeof link, "%s/link", root);
    assert_int_equal(symlink("folder/..", link), 0);
    char *found = source_forward_realpath(next_mount, link, &error);
    assert_non_null(found);
    assert_string_equal(found, root);
    free(found);
    assert_int_equal(unlink(link), 0);
    assert_null(source_forward_realpath(next_mount, link, &error));
    assert_int_equal(error.code, ERROR_NOT_FOUND);
    next_mount = next_mount * 2 + 1;
}

/* Of glances: told by the name alone, and whether it was told here or there. */
static bool is_whole(const char *folder)
{
    return strcmp(folder, "/whole/elsewhere") == 0 ? is_other : strcmp(folder, "/whole") == 0;
}

static const struct source_format format = {.is_whole = is_whole};

static void a_glance_tells_the_same_here_and_there(void **state)
{
    const struct glance glance = {.format = &format, .uid = getuid()};
    char path[MODEL_PATH_CHARS + 16], here[64], there[64];
    static const char *const names[] = {"a", "folder", "missing", "glance", "glance/x", ""};
    (void)state;
    snprintf(path, sizeof path, "%s/glance", root);
    assert_int_equal(symlink("a", path), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", root, names[i]);
        for (enum glance_kind kind = 0; kind < GLANCE_KINDS; kind++) {
            ssize_t n_here = glance_at(&glance, kind, path, here, sizeof here);
            assert_int_equal(source_forward_glance(next_mount, &glance, kind, path, there, sizeof there), n_here);
            assert_memory_equal(here, there, n_here > 0 ? (size_t)n_here : 0);
        }
    }
    assert_int_equal(glance_at(&glance, GLANCE_TEXT, path, here, 0), -1);
    assert_int_equal(source_forward_glance(next_mount, &glance, GLANCE_IS_WHOLE, "/whole", NULL, 0), 0);
    assert_int_equal(source_forward_glance(next_mount, &glance, GLANCE_IS_WHOLE, "/whole/elsewhere", NULL, 0), 0);
    assert_int_equal(glance_at(&glance, GLANCE_IS_WHOLE, "/whole/elsewhere", NULL, 0), -1);
    assert_int_equal(source_forward_glance(next_mount, &glance, GLANCE_IS_WHOLE, "/half", NULL, 0), -1);
    snprintf(path, sizeof path, "%s/glance", root);
    unlink(path);
    next_mount = next_mount * 2 + 1;
}

int main(int argc, char **argv)
{
    is_other = argc > 1;
    mount_child_run_if_asked(argc, argv, &format);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_process_opens_lists_and_reads),
        cmocka_unit_test(a_single_file_is_told_from_a_folder),
        cmocka_unit_test(a_long_listing_comes_in_parts),
        cmocka_unit_test(errors_come_as_they_are),
        cmocka_unit_test(a_file_that_was_replaced_is_noticed),
        cmocka_unit_test(a_cancelled_read_ends_at_once_and_too_many_of_them_refuse_more),
        cmocka_unit_test(a_check_ends_when_it_is_cancelled),
        cmocka_unit_test(the_end_of_this_process_ends_a_wait),
        cmocka_unit_test(a_process_that_is_killed_fails_its_reads_and_another_one_is_started),
        cmocka_unit_test(a_process_is_started_five_times_in_a_row_and_not_once_more),
        cmocka_unit_test(a_user_has_half_of_the_connections_and_another_one_still_some),
        cmocka_unit_test(the_process_has_no_descriptor_of_ours_and_no_secret_of_the_environment),
        cmocka_unit_test(nonsense_ends_the_connection_and_not_the_process),
        cmocka_unit_test(signals_that_are_for_the_daemon_do_not_end_it),
        cmocka_unit_test(a_name_of_a_root_is_found_out_by_another_process),
        cmocka_unit_test(a_glance_tells_the_same_here_and_there),
        cmocka_unit_test(there_are_64_processes_and_unused_ones_make_room),
    };
    return cmocka_run_group_tests(tests, create, destroy);
}
