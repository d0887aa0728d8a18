/* One look of a user's folders at a time: paths are copied for a helper, what it found is held against the table as it is then. A
 * path is its user's choice, and may be on a mount that does not answer: then no other user's look waits for it. A folder is given
 * up when two looks in a row did not find it: the first may fall between a client's keep and its rename. */
#include "replica/folder_watch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "observe/log.h"
#include "replica/folder_record.h"
#include "source/disk/mounts.h"
#include "source/disk/trusted_path.h"

enum { WATCH_MS = 3000, SOON_MS = 200, LOOKS = 2 };

struct look {
    char *path;
    uid_t uid;
    uint64_t device, inode;
    enum folder_sight sight;
};

struct user_look {         /* of all folders of a user, or of the records of folders that were given up */
    struct loop_work work; /* first */
    struct user_look *next;
    struct folder_watch *watch;
    struct look *looks;
    size_t n_looks, look_room;
    uid_t uid;
    bool is_of_records, is_looking; /* it is a helper's then */
};

struct folder_watch {
    struct loop *loop;
    struct folders *folders;
    struct loop_timer *timer;
    struct user_look *users; /* those that have a folder, or are being looked at */
};

static void add_look(struct user_look *user, const struct folder *folder)
{
    ARRAY_RESERVE(user->looks, user->n_looks, user->look_room);
    user->looks[user->n_looks++] =
        (struct look){memory_copy_text(folder->path), folder->uid, folder->device, folder->inode, SIGHT_NONE};
}

static void clear_looks(struct user_look *user)
{
    for (size_t i = 0; i < user->n_looks; i++)
        free(user->looks[i].path);
    user->n_looks = 0;
}

static void free_user(struct user_look *user)
{
    clear_looks(user);
    free(user->looks);
    free(user);
}

/* The one that is not with a helper now. */
static struct user_look *user_of(struct folder_watch *watch, uid_t uid, bool is_of_records)
{
    for (struct user_look *user = watch->users; user; user = user->next)
        if (user->uid == uid && user->is_of_records == is_of_records && (!is_of_records || !user->is_looking))
            return user;
    struct user_look *user = memory_alloc(sizeof *user);
    *user = (struct user_look){.next = watch->users, .watch = watch, .uid = uid, .is_of_records = is_of_records};
    watch->users = user;
    return user;
}

enum folder_sight folder_watch_look(const char *path, uid_t uid, uint64_t device, uint64_t inode)
{
    struct stat status;
    struct error error = {.code = ERROR_NOT_FOUND};
    if (mounts_find_fuse(path))
        return SIGHT_NONE;
    int fd = trusted_path_look(path, &error);
    bool is_it =
        fd >= 0 && fstat(fd, &status) == 0 && status.st_dev == device && status.st_ino == inode && status.st_uid == uid;
    if (fd >= 0)
        close(fd);
    /* behind a link is where it was not made */
    bool is_another = fd >= 0 || error.code == ERROR_NOT_FOUND || error.code == ERROR_FAILED_PRECONDITION;
    return is_it ? SIGHT_THERE : is_another ? SIGHT_GONE : SIGHT_NONE;
}

static void look_at_paths(struct loop_work *work)
{
    struct user_look *user = (struct user_look *)work;
    for (struct look *at = user->looks; at < user->looks + user->n_looks; at++)
        at->sight = folder_watch_look(at->path, at->uid, at->device, at->inode);
}

static void remove_records(struct loop_work *work)
{
    struct user_look *user = (struct user_look *)work;
    for (const struct look *at = user->looks; at < user->looks + user->n_looks; at++)
        folder_record_remove(folders_state_dir(user->watch->folders), at->uid, at->device, at->inode);
}

/* A client that is still at it is not judged. What cannot be seen is believed to be there. */
static bool is_given_up(struct folders *folders, struct folder *folder, enum folder_sight sight)
{
    folder->is_seen = folder->is_seen || sight == SIGHT_THERE;
    folder->n_missed = sight == SIGHT_GONE && !folder->is_open ? folder->n_missed + 1 : 0;
    if (!folder->is_confirmed && (sight == SIGHT_THERE || (sight == SIGHT_NONE && !folder->is_open)))
        folders_confirm(folders, folder);
    return folder->n_missed >= LOOKS && (folder->is_seen || !folder->is_confirmed);
}

/* True: some are missing and want another look soon. */
static bool judge(struct folder_watch *watch, const struct user_look *user)
{
    bool is_missing_some = false;
    for (size_t i = 0; i < user->n_looks; i++) {
        const struct look *at = &user->looks[i];
        struct folder *folder = folders_find(watch->folders, at->uid, at->path);
        bool is_same = folder && folder->is_kept && folder->device == at->device && folder->inode == at->inode;
        if (is_same && is_given_up(watch->folders, folder, at->sight)) {
            log_at_of(LOG_INFO, "folder_gone", at->uid, LOG_TEXT("path", folder->path),
                      LOG_TEXT("artifact", folder->artifact));
            folder_watch_drop(watch, folder);
        } else if (is_same) {
            is_missing_some = is_missing_some || folder->n_missed;
        }
    }
    return is_missing_some;
}

static void on_looked(struct loop_work *work)
{
    struct user_look *user = (struct user_look *)work;
    struct folder_watch *watch = user->watch;
    user->is_looking = false;
    bool is_missing_some = watch->timer && !user->is_of_records && judge(watch, user);
    struct user_look **at = &watch->users;
    while (*at != user)
        at = &(*at)->next;
    *at = user->next;
    free_user(user);
    if (is_missing_some)
        folder_watch_now(watch);
}

void folder_watch_drop(struct folder_watch *watch, struct folder *folder)
{
    add_look(user_of(watch, 0, true), folder);
    folders_drop(watch->folders, folder);
    folder_watch_now(watch);
}

static void begin_look(struct user_look *user)
{
    struct error error;
    user->work = (struct loop_work){.do_work = user->is_of_records ? remove_records : look_at_paths,
                                    .done = on_looked,
                                    .pool = LOOP_DISK,
                                    .uid = user->uid};
    user->is_looking = loop_submit(user->watch->loop, &user->work, &error) == 0;
    if (!user->is_looking && !user->is_of_records)
        clear_looks(user); /* made anew the next time; records are remembered */
}

static void on_timer(void *data)
{
    struct folder_watch *watch = data;
    for (const struct folder *folder = folders_first(watch->folders); folder; folder = folder->next) {
        struct user_look *user = folder->is_kept ? user_of(watch, folder->uid, false) : NULL;
        if (user && !user->is_looking)
            add_look(user, folder);
    }
    for (struct user_look *user = watch->users; user; user = user->next)
        if (!user->is_looking && user->n_looks)
            begin_look(user);
}

static void restore(void *data, const struct folder *record)
{
    folders_restore(((struct folder_watch *)data)->folders, record);
}

struct folder_watch *folder_watch_create(struct loop *loop, struct folders *folders)
{
    struct folder_watch *watch = memory_alloc(sizeof *watch);
    watch->loop = loop;
    watch->folders = folders;
    watch->timer = loop_timer_create(loop, on_timer, watch);
    loop_timer_start(watch->timer, SOON_MS, WATCH_MS);
    folder_record_read_all(folders_state_dir(folders), restore, watch);
    return watch;
}

void folder_watch_now(struct folder_watch *watch)
{
    if (watch->timer)
        loop_timer_start(watch->timer, SOON_MS, WATCH_MS);
}

void folder_watch_stop(struct folder_watch *watch)
{
    if (!watch)
        return;
    loop_timer_destroy(watch->timer);
    watch->timer = NULL;
}

void folder_watch_destroy(struct folder_watch *watch)
{
    if (!watch)
        return;
    while (watch->users) {
        struct user_look *next = watch->users->next;
        free_user(watch->users);
        watch->users = next;
    }
    free(watch);
}
