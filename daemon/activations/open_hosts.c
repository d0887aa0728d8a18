#include "activations/open_hosts.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/condition.h"
#include "base/memory.h"

static const uint64_t LOOK_NS = (uint64_t)60 * 1000000000; /* of a wait without an end */

struct open_hosts {
    pthread_mutex_t lock;
    pthread_cond_t left;
    struct open_host *list;
};

struct open_hosts *open_hosts_create(void)
{
    struct open_hosts *hosts = memory_alloc(sizeof *hosts);
    pthread_mutex_init(&hosts->lock, NULL);
    condition_init(&hosts->left);
    return hosts;
}

void open_hosts_destroy(struct open_hosts *hosts)
{
    if (!hosts)
        return;
    while (hosts->list) {
        struct open_host *next = hosts->list->next;
        free(hosts->list->path);
        free(hosts->list);
        hosts->list = next;
    }
    pthread_mutex_destroy(&hosts->lock);
    pthread_cond_destroy(&hosts->left);
    free(hosts);
}

static struct open_host *find_or_add(struct open_hosts *hosts, const char *path, uint32_t host)
{
    struct open_host *at = hosts->list;
    while (at && (at->host != host || strcmp(at->path, path) != 0))
        at = at->next;
    if (!at) {
        at = memory_alloc(sizeof *at);
        at->path = memory_copy_text(path);
        at->host = host;
        at->next = hosts->list;
        hosts->list = at;
    }
    return at;
}

static void go_out(struct open_hosts *hosts, struct open_host *at)
{
    struct open_host **link = &hosts->list;
    if (--at->n_inside > 0 || at->folder)
        return;
    while (*link != at)
        link = &(*link)->next;
    *link = at->next;
    free(at->path);
    free(at);
}

struct open_host *open_hosts_enter(struct open_hosts *hosts, const char *path, uint32_t host, uint64_t until_ns)
{
    pthread_mutex_lock(&hosts->lock);
    struct open_host *at = find_or_add(hosts, path, host);
    at->n_inside++;
    while (at->is_taken && (!until_ns || clock_now_ns() < until_ns))
        condition_wait_until(&hosts->left, &hosts->lock, until_ns ? until_ns : clock_now_ns() + LOOK_NS);
    bool is_ours = !at->is_taken;
    if (is_ours)
        at->is_taken = true;
    else
        go_out(hosts, at);
    pthread_mutex_unlock(&hosts->lock);
    return is_ours ? at : NULL;
}

void open_hosts_leave(struct open_hosts *hosts, struct open_host *at)
{
    pthread_mutex_lock(&hosts->lock);
    at->is_taken = false;
    go_out(hosts, at);
    pthread_cond_broadcast(&hosts->left);
    pthread_mutex_unlock(&hosts->lock);
}
