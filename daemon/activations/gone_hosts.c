/* Folders that somebody has removed, or moved away, are forgotten while a sample waits for room: what they took of the disk quota is
 * there again. Those behind the same mounts are looked at one after the other, those behind others beside them: a mount that does not
 * answer any more keeps its own folders from being looked at, and the daemon from nothing else. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "activations/writer_private.h"
#include "base/activation_name.h"
#include "base/clock.h"
#include "base/memory.h"
#include "source/disk/mounts.h"

enum { PAUSE_MS = 200, PAUSES_PER_ROUND = 4 }; /* a fifth of a helper's time at most, whatever the number of folders */
enum { MAX_LOOKS = 8 };

struct gone_look { /* at the folders behind some mounts */
    struct loop_work work;
    struct activations *table;
    struct gone_look *next_look;
    uint64_t mounts;
    size_t next; /* in the table */
    uint64_t began_ns;
    char *path; /* of the store of the one that is being looked at */
    uint32_t host;
    bool is_gone;
    struct known_host known; /* the one that is gone, as the registry has it */
};

static void find_folder(struct loop_work *work)
{
    struct gone_look *look = (struct gone_look *)work;
    const struct activations *table = look->table;
    char name[ACTIVATION_NAME_CHARS];
    struct error error = {0};
    int store_fd = store_path_open(&table->limits.roots, look->path, NULL, &error);
    int fd = store_fd < 0 ? -1 : store_path_open_below(store_fd, activation_host_name(look->host, name), NULL, &error);
    look->is_gone = fd < 0 && error.code == ERROR_NOT_FOUND &&
                    host_registry_find(table->state_dir, look->path, look->host, &look->known);
    if (fd >= 0)
        close(fd);
    if (store_fd >= 0)
        close(store_fd);
}

/* --- behind which mounts -------------------------------------------------------------------------------------------- */

struct behind { /* the last store, since its hosts come together */
    const char *path;
    uint64_t mounts;
};

static uint64_t find_mounts(struct behind *last, const char *path)
{
    if (!last->path || strcmp(last->path, path) != 0)
        *last = (struct behind){path, mounts_find(path)};
    return last->mounts;
}

/* --- one look after the other --------------------------------------------------------------------------------------- */

static bool look_at_next(struct gone_look *look);

static void end_look(struct gone_look *look)
{
    struct gone_hosts *gone = &look->table->gone;
    uint64_t now_ns = clock_now_ns();
    uint64_t rest_until_ns = now_ns + PAUSE_MS * NS_PER_MS + PAUSES_PER_ROUND * (now_ns - look->began_ns);
    struct gone_look **at = &gone->looks;
    while (*at != look)
        at = &(*at)->next_look;
    *at = look->next_look;
    gone->n_looks--;
    gone->rest_until_ns = rest_until_ns > gone->rest_until_ns ? rest_until_ns : gone->rest_until_ns;
    free(look);
}

static void on_looked(struct loop_work *work)
{
    struct gone_look *look = (struct gone_look *)work;
    struct activations *table = look->table;
    const struct table_host *host = host_table_find(table->hosts, look->path, look->host);
    if (look->is_gone && host && !host->writer && !table->is_draining && !table->is_stopped) {
        table->n_recoveries++;
        writer_recover(table, &look->known); /* which does not find it, and forgets it */
    }
    known_host_fini(&look->known);
    look->known = (struct known_host){0};
    free(look->path);
    look->path = NULL;
    if (!look_at_next(look))
        end_look(look);
}

/* The next folder behind the look's mounts; false: there is none any more. */
static bool look_at_next(struct gone_look *look)
{
    struct activations *table = look->table;
    const struct table_host *host;
    struct behind last = {0};
    bool is_ending = table->is_draining || table->is_stopped;
    while (!is_ending && (host = host_table_at(table->hosts, look->next++)) != NULL) {
        const struct known_host known = host_table_known(host);
        if (!host->bytes || host->writer || find_mounts(&last, known.path) != look->mounts)
            continue;
        look->path = memory_copy_text(known.path);
        look->host = known.host;
        look->work = (struct loop_work){.do_work = find_folder,
                                        .done = on_looked,
                                        .pool = LOOP_DISK,
                                        .uid = known.uid,
                                        .lane = look->mounts | (uint64_t)1 << 63};
        loop_continue(table->loop, &look->work);
        return true;
    }
    return false;
}

static bool is_being_looked_at(const struct gone_hosts *gone, uint64_t mounts)
{
    const struct gone_look *look = gone->looks;
    while (look && look->mounts != mounts)
        look = look->next_look;
    return look;
}

void gone_hosts_look(struct activations *table)
{
    struct gone_hosts *gone = &table->gone;
    uint64_t now_ns = clock_now_ns();
    const struct table_host *host;
    struct behind last = {0};
    if (now_ns < gone->rest_until_ns || gone->n_looks == MAX_LOOKS)
        return;
    gone->rest_until_ns = now_ns + PAUSE_MS * NS_PER_MS;
    for (size_t i = 0; gone->n_looks < MAX_LOOKS && (host = host_table_at(table->hosts, i)) != NULL; i++) {
        const struct known_host known = host_table_known(host);
        uint64_t mounts = find_mounts(&last, known.path);
        if (!host->bytes || host->writer || is_being_looked_at(gone, mounts))
            continue;
        struct gone_look *look = memory_alloc(sizeof *look);
        *look =
            (struct gone_look){.table = table, .next_look = gone->looks, .mounts = mounts, .next = i, .began_ns = now_ns};
        gone->looks = look;
        gone->n_looks++;
        if (!look_at_next(look))
            end_look(look);
    }
}
