/* Folders that were removed are forgotten, whatever becomes of those behind a mount that does not answer. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "activations/writer_private.h"
#include "source/disk/mounts.h"

#include <cmocka.h>

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    char folder[64]; /* what is opened in it hangs */
    bool is_hung;    /* somebody is */
} mount = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Instead of libc's, in all of the test's program. */
int openat(int folder, const char *name, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    char link[64], path[256] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    pthread_mutex_lock(&mount.lock);
    while (*mount.folder && strncmp(path, mount.folder, strlen(mount.folder)) == 0) {
        mount.is_hung = true;
        pthread_cond_broadcast(&mount.changed);
        pthread_cond_wait(&mount.changed, &mount.lock);
    }
    pthread_mutex_unlock(&mount.lock);
    return (int)syscall(SYS_openat, folder, name, flags, mode);
}

static void hang(const char *folder) /* "" = no longer */
{
    pthread_mutex_lock(&mount.lock);
    snprintf(mount.folder, sizeof mount.folder, "%s", folder);
    pthread_cond_broadcast(&mount.changed);
    pthread_mutex_unlock(&mount.lock);
}

static struct scene {
    char state[32], here[32], there[32]; /* folders; the last two are on two file systems */
    struct loop *loop;
    struct activations *table;
} scene;

static struct table_host *find(const char *path)
{
    return host_table_find(scene.table->hosts, path, 1);
}

static void remember(char *path)
{
    struct known_host known = {.path = path, .host = 1, .uid = getuid()};
    struct error error;
    assert_int_equal(host_registry_add(scene.state, &known, &error), 0);
    struct table_host *host = host_table_add(scene.table->hosts, &known, 0, &error);
    assert_non_null(host);
    host->is_known = true;
    host_table_count(scene.table->hosts, host, 1000);
}

static int set_up(void **state)
{
    static const char *roots[2];
    (void)state;
    strcpy(scene.state, "/tmp/gone-state-XXXXXX");
    strcpy(scene.here, "/tmp/gone-hosts-XXXXXX");
    strcpy(scene.there, "/dev/shm/gone-hosts-XXXXXX");
    if (!mkdtemp(scene.state) || !mkdtemp(scene.here) || !mkdtemp(scene.there))
        return -1;
    roots[0] = scene.here;
    roots[1] = scene.there;
    scene.loop = loop_create();
    scene.table = activations_create(scene.loop, scene.state, NULL);
    activations_configure(scene.table, &(struct activation_limits){.roots = {roots, 2}});
    remember(scene.here);
    remember(scene.there);
    return 0;
}

static int tear_down(void **state)
{
    char command[128];
    (void)state;
    loop_destroy(scene.loop);
    activations_destroy(scene.table);
    snprintf(command, sizeof command, "rm -rf %s %s %s", scene.state, scene.here, scene.there);
    return system(command);
}

/* --- the loop runs until ... ------------------------------------------------------------------------------------------ */

static bool (*is_so)(void);
static int patience;

static void look_again(void *data)
{
    (void)data;
    gone_hosts_look(scene.table);
    if (is_so() || --patience == 0)
        loop_stop(scene.loop);
}

static void run_until(bool (*condition)(void))
{
    is_so = condition;
    patience = 20000;
    struct loop_timer *timer = loop_timer_create(scene.loop, look_again, NULL);
    loop_timer_start(timer, 1, 1);
    loop_run(scene.loop);
    loop_timer_destroy(timer);
    assert_true(is_so());
}

static bool only_here_is_left(void)
{
    return find(scene.here) && !find(scene.there) && !scene.table->writers;
}

static bool none_is_left(void)
{
    return !find(scene.here) && !find(scene.there) && !scene.table->writers && !scene.table->gone.looks;
}

static void what_is_behind_a_mount_that_hangs_keeps_no_other_folder_and_no_end(void **state)
{
    (void)state;
    if (mounts_find(scene.here) == mounts_find(scene.there))
        skip();
    hang(scene.here);
    run_until(only_here_is_left);
    pthread_mutex_lock(&mount.lock);
    while (!mount.is_hung)
        pthread_cond_wait(&mount.changed, &mount.lock);
    pthread_mutex_unlock(&mount.lock);
    assert_int_equal(scene.table->gone.n_looks, 1);
    assert_true(activations_idle(scene.table));
    hang("");
    run_until(none_is_left);
}

static void a_folder_that_is_there_is_kept(void **state)
{
    char folder[64];
    (void)state;
    snprintf(folder, sizeof folder, "%s/host_001", scene.here);
    assert_int_equal(mkdir(folder, 0755), 0);
    run_until(only_here_is_left);
}

int main(void)
{
#define LOOKED(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        LOOKED(what_is_behind_a_mount_that_hangs_keeps_no_other_folder_and_no_end),
        LOOKED(a_folder_that_is_there_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
