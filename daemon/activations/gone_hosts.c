/* Folders that somebody has removed, or moved away, are forgotten while a sample waits for room: what they took of the disk quota is
 * there again. */
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include "activations/writer_private.h"
#include "base/activation_name.h"
#include "base/clock.h"
#include "base/memory.h"

enum { PAUSE_MS = 200, PAUSES_PER_ROUND = 4 }; /* a fifth of a helper's time at most, whatever the number of folders */

static struct activations *table_of(struct loop_work *work)
{
    return (struct activations *)((char *)work - offsetof(struct activations, gone.work));
}

static void find_folder(struct loop_work *work)
{
    struct activations *table = table_of(work);
    struct gone_hosts *gone = &table->gone;
    char name[ACTIVATION_NAME_CHARS];
    struct error error = {0};
    int store_fd = store_path_open(&table->limits.roots, gone->path, NULL, &error);
    int fd = store_fd < 0 ? -1 : store_path_open_below(store_fd, activation_host_name(gone->host, name), NULL, &error);
    gone->is_gone = fd < 0 && error.code == ERROR_NOT_FOUND &&
                    host_registry_find(table->state_dir, gone->path, gone->host, &gone->known);
    if (fd >= 0)
        close(fd);
    if (store_fd >= 0)
        close(store_fd);
}

static void look_at_next(struct activations *table);

static void on_looked(struct loop_work *work)
{
    struct activations *table = table_of(work);
    struct gone_hosts *gone = &table->gone;
    const struct table_host *host = host_table_find(table->hosts, gone->path, gone->host);
    if (gone->is_gone && host && !host->writer && !table->is_draining && !table->is_stopped) {
        table->n_recoveries++;
        writer_recover(table, &gone->known); /* which does not find it, and forgets it */
    }
    known_host_fini(&gone->known);
    gone->known = (struct known_host){0};
    free(gone->path);
    gone->path = NULL;
    look_at_next(table);
}

static void look_at_next(struct activations *table)
{
    struct gone_hosts *gone = &table->gone;
    const struct table_host *host;
    bool is_ending = table->is_draining || table->is_stopped;
    while (!is_ending && (host = host_table_at(table->hosts, gone->next++)) != NULL) {
        const struct known_host known = host_table_known(host);
        if (!host->bytes || host->writer)
            continue;
        gone->path = memory_copy_text(known.path);
        gone->host = known.host;
        gone->work = (struct loop_work){.do_work = find_folder, .done = on_looked, .pool = LOOP_DISK, .uid = known.uid};
        loop_continue(table->loop, &gone->work);
        return;
    }
    uint64_t now_ns = clock_now_ns();
    gone->is_looking = false;
    gone->rest_until_ns = now_ns + PAUSE_MS * NS_PER_MS + PAUSES_PER_ROUND * (now_ns - gone->began_ns);
}

void gone_hosts_look(struct activations *table)
{
    struct gone_hosts *gone = &table->gone;
    uint64_t now_ns = clock_now_ns();
    if (gone->is_looking || now_ns < gone->rest_until_ns)
        return;
    gone->is_looking = true;
    gone->began_ns = now_ns;
    gone->next = 0;
    look_at_next(table);
}
