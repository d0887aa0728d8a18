/* A short list; see folders.h. */
#include "replica/folders.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

struct folders {
    struct replica_table *host;
    struct quota *quota;
    char *state_dir;
    struct folder *list; /* newest first */
    uint64_t last_copy;
};

struct folders *folders_create(struct replica_table *host, struct quota *quota, const char *state_dir)
{
    struct folders *folders = memory_alloc(sizeof *folders);
    folders->host = host;
    folders->quota = quota;
    folders->state_dir = memory_copy_text(state_dir);
    return folders;
}

static void free_folder(struct folder *folder)
{
    quota_charge_end(&folder->row);
    quota_charge_end(&folder->texts);
    free(folder->path);
    free(folder->artifact);
    free(folder->identity);
    free(folder);
}

void folders_destroy(struct folders *folders)
{
    if (!folders)
        return;
    for (struct folder *folder = folders->list, *next; folder; folder = next) {
        next = folder->next;
        free_folder(folder);
    }
    free(folders->state_dir);
    free(folders);
}

struct folder *folders_first(const struct folders *folders)
{
    return folders->list;
}

const char *folders_state_dir(const struct folders *folders)
{
    return folders->state_dir;
}

struct folder *folders_find(const struct folders *folders, uid_t uid, const char *path)
{
    struct folder *folder = folders->list;
    while (folder && (folder->uid != uid || strcmp(folder->path, path) != 0))
        folder = folder->next;
    return folder;
}

struct folder *folders_find_for(const struct folders *folders, uid_t uid, const char *path)
{
    struct folder *found = folders_find(folders, uid, path);
    if (found || uid != 0)
        return found ? found : folders_find(folders, 0, path);
    for (struct folder *folder = folders->list; folder; folder = folder->next)
        if (strcmp(folder->path, path) == 0 && (!found || folder->is_seen))
            found = folder;
    return found;
}

/* --- waiting --- */

void folders_wait(struct folder *folder, struct folder_waiter *waiter)
{
    waiter->next = NULL;
    waiter->link = folder->last_waiter;
    waiter->awaited = folder;
    *waiter->link = waiter;
    folder->last_waiter = &waiter->next;
}

void folders_wait_no_more(struct folder_waiter *waiter)
{
    if (!waiter->link)
        return;
    *waiter->link = waiter->next;
    *(waiter->next ? &waiter->next->link : &waiter->awaited->last_waiter) = waiter->link;
    waiter->link = NULL;
}

/* Whether what was begun last makes it wait, without a look at all the others. */
static bool awaits(const struct folder_waiter *waiter, const struct folder *folder)
{
    const struct folder_wish *wish = &waiter->wish;
    bool has_path = strcmp(folder->path, wish->path) == 0;
    if (folder->is_confirmed)
        return false;
    if (folder->uid != wish->uid)
        return has_path && folder->uid == 0;
    return has_path || (!wish->alone && strcmp(folder->identity, wish->identity) == 0);
}

static struct folder_waiter *take_waiters(struct folder *folder)
{
    struct folder_waiter *list = folder->waiters;
    folder->waiters = NULL;
    folder->last_waiter = &folder->waiters;
    return list;
}

/* With nothing there for them, the first one begins what the others wait for. */
static void tell_dropped(struct folders *folders, struct folder_waiter *list)
{
    while (list) {
        struct folder_waiter *waiter = list;
        list = list->next;
        waiter->link = NULL;
        if (folders->list && awaits(waiter, folders->list))
            folders_wait(folders->list, waiter);
        else
            waiter->retry(waiter);
    }
}

static void tell_confirmed(struct folder_waiter *list)
{
    while (list) {
        struct folder_waiter *waiter = list;
        list = list->next;
        waiter->link = NULL;
        waiter->retry(waiter);
    }
}

/* --- beginning --- */

/* "/a/b", nothing that leads elsewhere by its text. */
static bool is_absolute(const char *path)
{
    size_t length = strlen(path);
    return path[0] == '/' && length < PATH_MAX && text_is_plain_path(path + 1) && text_is_utf8(path, length);
}

static int check_wish(const struct folder_wish *wish, struct error *error)
{
    if (!is_absolute(wish->path))
        return fail(error, ERROR_INVALID_ARGUMENT, "FOLDER_PATH",
                    "a folder is named by its absolute path, without . and ..");
    if (!*wish->identity || strlen(wish->identity) > DIGEST_HEX_CHARS || strlen(wish->artifact) >= PATH_MAX)
        return fail(error, ERROR_INVALID_ARGUMENT, "FOLDER_IDENTITY", "the folder has no artifact or no identity");
    return 0;
}

static int fail_other(const struct folder *folder, struct error *error)
{
    char path[TEXT_NAME_CHARS], artifact[TEXT_NAME_CHARS];
    text_escape(folder->path, strlen(folder->path), path);
    text_escape(folder->artifact, strlen(folder->artifact), artifact);
    return fail(error, ERROR_FAILED_PRECONDITION, "FOLDER_OF_ANOTHER_STATE",
                "%s holds %s as it was when the folder was made, which is not what is asked for now; tensorcast release %s",
                path, artifact, path);
}

/* Of the same user and content, one that is there before one that is being made. */
static struct folder *find_copy(const struct folders *folders, const struct folder_wish *wish)
{
    struct folder *found = NULL;
    for (struct folder *folder = folders->list; folder; folder = folder->next)
        if (folder->uid == wish->uid && strcmp(folder->identity, wish->identity) == 0 && (!found || folder->is_confirmed))
            found = folder;
    return found;
}

static struct quota_charge charge_of(const struct folders *folders, enum quota_kind kind, uid_t uid)
{
    return (struct quota_charge){.quota = folders->quota, .kind = kind, .uid = uid};
}

static uint64_t text_bytes(const char *path, const char *artifact, const char *identity)
{
    return sizeof(struct folder) + strlen(path) + strlen(artifact) + strlen(identity) + 3;
}

/* Nothing stays charged when it fails. */
static int charge_wish(const struct folders *folders, const struct folder_wish *wish, struct folder *charged,
                       struct error *error)
{
    charged->row = charge_of(folders, QUOTA_FOLDERS, wish->uid);
    charged->texts = charge_of(folders, QUOTA_METADATA, wish->uid);
    if (quota_charge_add(&charged->row, 1, error) == 0 &&
        quota_charge_add(&charged->texts, text_bytes(wish->path, wish->artifact, wish->identity), error) == 0)
        return 0;
    quota_charge_end(&charged->row);
    return -1;
}

static struct folder *add(struct folders *folders, const struct folder_wish *wish, uint64_t copy,
                          const struct folder *charged)
{
    struct folder *folder = memory_alloc(sizeof *folder);
    *folder = (struct folder){.next = folders->list,
                              .path = memory_copy_text(wish->path),
                              .artifact = memory_copy_text(wish->artifact),
                              .identity = memory_copy_text(wish->identity),
                              .uid = wish->uid,
                              .bytes = wish->bytes,
                              .copy = copy,
                              .is_open = true,
                              .row = charged->row,
                              .texts = charged->texts,
                              .last_waiter = &folder->waiters};
    folders->list = folder;
    return folder;
}

int folders_begin(struct folders *folders, const struct folder_wish *wish, enum folder_turn *turn, struct folder **folder,
                  const struct folder **other, struct error *error)
{
    if (check_wish(wish, error) < 0)
        return -1;
    *folder = folders_find(folders, wish->uid, wish->path);
    *folder = *folder ? *folder : folders_find(folders, 0, wish->path);
    *other = NULL;
    if (*folder) {
        bool is_same = strcmp((*folder)->identity, wish->identity) == 0;
        *turn = (*folder)->is_confirmed ? FOLDER_THERE : FOLDER_WAIT;
        return is_same || *turn == FOLDER_WAIT ? 0 : fail_other(*folder, error);
    }
    struct folder *copy = wish->alone ? NULL : find_copy(folders, wish);
    *turn = copy ? (copy->is_confirmed ? FOLDER_SHARE : FOLDER_WAIT) : FOLDER_MAKE;
    if (*turn == FOLDER_WAIT) {
        *folder = copy;
        return 0;
    }
    *other = copy;
    struct folder charged;
    if (charge_wish(folders, wish, &charged, error) < 0)
        return -1;
    if (*turn == FOLDER_MAKE && replica_reserve(folders->host, wish->uid, wish->bytes, error) < 0) {
        quota_charge_end(&charged.row);
        quota_charge_end(&charged.texts);
        return -1;
    }
    *folder = add(folders, wish, *other ? (*other)->copy : ++folders->last_copy, &charged);
    return 0;
}

/* --- the rest of its life --- */

static bool has_copy(const struct folders *folders, uint64_t copy)
{
    const struct folder *folder = folders->list;
    while (folder && folder->copy != copy)
        folder = folder->next;
    return folder != NULL;
}

void folders_restore(struct folders *folders, const struct folder *record)
{
    struct folder *folder = memory_alloc(sizeof *folder);
    *folder = *record;
    folder->last_waiter = &folder->waiters;
    folder->is_kept = true;
    folder->row = charge_of(folders, QUOTA_FOLDERS, folder->uid);
    folder->texts = charge_of(folders, QUOTA_METADATA, folder->uid);
    quota_charge_force(&folder->row, 1);
    quota_charge_force(&folder->texts, text_bytes(folder->path, folder->artifact, folder->identity));
    if (!has_copy(folders, folder->copy))
        replica_reserve_anyway(folders->host, folder->uid, folder->bytes);
    folders->last_copy = folder->copy > folders->last_copy ? folder->copy : folders->last_copy;
    folder->next = folders->list;
    folders->list = folder;
}

void folders_keep(struct folders *folders, struct folder *folder)
{
    (void)folders;
    folder->is_kept = true;
}

void folders_confirm(struct folders *folders, struct folder *folder)
{
    folder->is_confirmed = true;
    /* whoever waits for another copy can share this one */
    for (struct folder *copy = folders->list, *next; copy; copy = next) {
        next = copy->next;
        if (copy->waiters && copy->uid == folder->uid && strcmp(copy->identity, folder->identity) == 0)
            tell_confirmed(take_waiters(copy));
    }
}

void folders_drop(struct folders *folders, struct folder *folder)
{
    struct folder **at = &folders->list;
    while (*at != folder)
        at = &(*at)->next;
    *at = folder->next;
    if (!has_copy(folders, folder->copy))
        replica_unreserve(folders->host, folder->uid, folder->bytes);
    struct folder_waiter *waiters = take_waiters(folder);
    free_folder(folder);
    tell_dropped(folders, waiters);
}
