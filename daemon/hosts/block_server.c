/* See block_server.h. One lock, for the tables and the jobs, which nothing holds while it opens, reads or waits for that.
 *
 *     a file of a reference    OPENING --> OPEN      asked for by its id; another id opens it again, once for each ask
 *                                      \-> REFUSED   told to all that wait, and forgotten
 *
 * The table, each ask and each job count as users of a file, which is closed with the last one. Files of a reference share what was
 * asked of its store, such as a listing, and are as old as that. */
#include "hosts/block_server.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/clock.h"
#include "base/condition.h"
#include "base/loop.h"
#include "base/memory.h"

enum {
    WAIT_MS = 1000,
    CANCEL_POLL_MS = 100,
    FILES_MAX = 512, /* each has a descriptor or two */
    KEEP_S = 60,
    REFUSE_AGAIN_S = 10, /* an id that was not here: it is not looked for again */
    SHARE_S = 10,        /* a listing: a file that is opened later may be one that it does not know */
};

struct reference {
    LIST_ENTRY(reference) next;
    char *text;
    bool is_in_list;
    size_t n_files;
    uint64_t began_ns;        /* when it began to be opened */
    const char *const *roots; /* that were trusted */
    pthread_mutex_t opening;  /* held by the opener; guards what follows */
    struct source *source;    /* without files; NULL = not opened yet, or ... */
    struct error error;       /* ... why not */
};

struct file {
    TAILQ_ENTRY(file) next;
    struct reference *of;
    char *name;
    enum { FILE_OPENING, FILE_OPEN, FILE_REFUSED } state;
    bool is_in_table;
    size_t n_users;
    uint64_t used_ns;      /* when it was asked for last */
    struct source *source; /* with this file alone */
    struct shared_file shared;
    char missed_id[SHARED_ID_CHARS]; /* the last one that it was opened again for in vain */
    uint64_t missed_ns;
    struct error error; /* why it is refused */
    pthread_cond_t opened;
};

struct job { /* on a helper: opens a file, or reads a range of it */
    struct loop_work work;
    struct block_server *server;
    struct file *file;
    struct block_ask ask;
    int references; /* atomic: the helper's and the asker's */
    bool is_abandoned, is_done;
    enum block_answer answer;
    const unsigned char *bytes;
    struct cached_block *pin;
    struct error error;
    pthread_cond_t done;
};

struct block_server {
    struct block_server_options options;
    struct cancel cancel;
    bool is_stopping; /* atomic */
    pthread_mutex_t lock;
    pthread_cond_t idle;
    TAILQ_HEAD(files, file) files; /* what was asked for last first */
    LIST_HEAD(, reference) references;
    size_t n_files, n_jobs;
};

static bool is_stopping(void *data)
{
    return __atomic_load_n(&((struct block_server *)data)->is_stopping, __ATOMIC_RELAXED);
}

struct block_server *block_server_create(const struct block_server_options *options)
{
    struct block_server *server = memory_alloc(sizeof *server);
    server->options = *options;
    server->cancel = (struct cancel){is_stopping, server};
    pthread_mutex_init(&server->lock, NULL);
    condition_init(&server->idle);
    TAILQ_INIT(&server->files);
    LIST_INIT(&server->references);
    return server;
}

static void set_refusal(struct block_reply *reply, int status, const char *reason)
{
    reply->status = status;
    snprintf(reply->reason, sizeof reply->reason, "%s", reason);
}

/* --- references and files: with the lock ---------------------------------------------------------------------------------- */

static void forget_reference(struct reference *reference)
{
    if (reference->is_in_list)
        LIST_REMOVE(reference, next);
    reference->is_in_list = false;
}

static struct reference *get_reference(struct block_server *server, const char *text, const char *const *roots)
{
    struct reference *reference;
    uint64_t now_ns = clock_now_ns();
    LIST_FOREACH (reference, &server->references, next)
        if (strcmp(reference->text, text) == 0)
            break;
    if (reference && (reference->roots != roots || now_ns - reference->began_ns > SHARE_S * 1000 * (uint64_t)NS_PER_MS)) {
        forget_reference(reference);
        reference = NULL;
    }
    if (!reference) {
        reference = memory_alloc(sizeof *reference);
        *reference =
            (struct reference){.text = memory_copy_text(text), .is_in_list = true, .began_ns = now_ns, .roots = roots};
        pthread_mutex_init(&reference->opening, NULL);
        LIST_INSERT_HEAD(&server->references, reference, next);
    }
    reference->n_files++;
    return reference;
}

static void release_reference(struct reference *reference)
{
    if (--reference->n_files)
        return;
    forget_reference(reference);
    source_unref(reference->source);
    pthread_mutex_destroy(&reference->opening);
    free(reference->text);
    free(reference);
}

static void release_file(struct file *file)
{
    if (--file->n_users)
        return;
    source_unref(file->source);
    release_reference(file->of);
    pthread_cond_destroy(&file->opened);
    free(file->name);
    free(file);
}

static void forget_file(struct block_server *server, struct file *file)
{
    if (!file->is_in_table)
        return;
    file->is_in_table = false;
    TAILQ_REMOVE(&server->files, file, next);
    server->n_files--;
    release_file(file);
}

static struct file *find_file(struct block_server *server, const struct block_query *query)
{
    struct file *file;
    TAILQ_FOREACH (file, &server->files, next)
        if (strcmp(file->name, query->file) == 0 && strcmp(file->of->text, query->reference) == 0)
            break;
    if (file && file != TAILQ_FIRST(&server->files)) {
        TAILQ_REMOVE(&server->files, file, next);
        TAILQ_INSERT_HEAD(&server->files, file, next);
    }
    return file;
}

/* False: all of them are in use. */
static bool make_room(struct block_server *server)
{
    struct file *oldest = TAILQ_LAST(&server->files, files);
    if (server->n_files < FILES_MAX)
        return true;
    while (oldest && oldest->n_users > 1)
        oldest = TAILQ_PREV(oldest, files, next);
    if (oldest)
        forget_file(server, oldest);
    return oldest;
}

/* --- jobs ----------------------------------------------------------------------------------------------------------------- */

static void release_job(struct job *job)
{
    if (__atomic_sub_fetch(&job->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    pthread_cond_destroy(&job->done);
    free(job);
}

static void on_job_done(struct loop_work *work)
{
    release_job((struct job *)work);
}

/* With the lock. NULL: too much waits there already. */
static struct job *submit_job(struct block_server *server, struct file *file, void (*do_work)(struct loop_work *work),
                              const struct block_ask *ask, struct error *error)
{
    struct source_options options = {0};
    server->options.source_options(server->options.data, &options);
    struct job *job = memory_alloc(sizeof *job);
    *job = (struct job){.work = {.do_work = do_work, .done = on_job_done, .uid = options.uid},
                        .server = server,
                        .file = file,
                        .ask = *ask,
                        .references = 2};
    job->ask.uid = options.uid;
    condition_init(&job->done);
    source_place_work(file->of->text, &job->work);
    if (loop_submit(server->options.loop, &job->work, error) != 0) {
        job->references = 1;
        release_job(job);
        return NULL;
    }
    file->n_users++;
    server->n_jobs++;
    return job;
}

/* The last that a helper does with the server. */
static void finish_job(struct job *job)
{
    struct block_server *server = job->server;
    pthread_mutex_lock(&server->lock);
    struct cached_block *unwanted = job->is_abandoned ? job->pin : NULL;
    if (source_has_changed(&job->error))
        forget_file(server, job->file);
    release_file(job->file);
    job->is_done = true;
    pthread_cond_signal(&job->done);
    pthread_mutex_unlock(&server->lock);
    if (unwanted)
        block_cache_unpin(server->options.cache, unwanted);
    pthread_mutex_lock(&server->lock);
    if (--server->n_jobs == 0)
        pthread_cond_broadcast(&server->idle);
    pthread_mutex_unlock(&server->lock);
}

/* Once for all its files. The source keeps the server's cancel, which outlives it; reads have their own. */
static int open_reference(struct reference *reference, const struct source_options *options, struct error *error)
{
    pthread_mutex_lock(&reference->opening);
    if (!reference->source && !reference->error.code)
        source_open(reference->text, options, &reference->source, &reference->error);
    if (!reference->source)
        *error = reference->error;
    pthread_mutex_unlock(&reference->opening);
    return reference->source ? 0 : -1;
}

static int open_source(const struct block_server *server, const struct file *file, struct source **source,
                       struct shared_file *shared, struct error *error)
{
    struct source_options options = {0};
    const char *reason;
    size_t index;
    server->options.source_options(server->options.data, &options);
    options.allow_relative = false; /* which would trust every path */
    options.cancel = &server->cancel;
    if (open_reference(file->of, &options, error) != 0 ||
        source_open_beside(file->of->source, &options, source, error) != 0 ||
        source_add_file(*source, file->name, &index, error) != 0)
        return -1;
    return shared_file_of(*source, index, shared, &reason)
               ? 0
               : fail(error, ERROR_FAILED_PRECONDITION, "NOT_SHARED", "another host cannot share it here: %s", reason);
}

static void do_open(struct loop_work *work)
{
    struct job *job = (struct job *)work;
    struct block_server *server = job->server;
    struct file *file = job->file;
    struct source *source = NULL;
    struct shared_file shared;
    int failed = open_source(server, file, &source, &shared, &job->error);
    pthread_mutex_lock(&server->lock);
    file->source = source;
    file->state = failed ? FILE_REFUSED : FILE_OPEN;
    if (failed) {
        file->error = job->error;
        forget_reference(file->of); /* its listing may be too old */
        forget_file(server, file);
    } else {
        file->shared = shared;
    }
    pthread_cond_broadcast(&file->opened);
    pthread_mutex_unlock(&server->lock);
    finish_job(job);
}

static void do_read(struct loop_work *work)
{
    struct job *job = (struct job *)work;
    struct block_server *server = job->server;
    pthread_mutex_lock(&server->lock);
    bool is_wanted = !job->is_abandoned;
    pthread_mutex_unlock(&server->lock);
    job->answer = BLOCK_READING;
    if (is_wanted)
        job->answer = block_cache_get(server->options.cache, &job->ask, &job->bytes, &job->pin, &job->error);
    finish_job(job);
}

/* --- asks ----------------------------------------------------------------------------------------------------------------- */

struct ask { /* on the stack of the thread that asks */
    struct block_server *server;
    const struct block_query *query;
    const struct cancel *cancel;
    struct block_reply *reply;
    uint64_t began_ns, until_ns;
    const char *const *roots; /* that are trusted now */
};

static bool has_ended(const struct ask *ask)
{
    return clock_now_ns() >= ask->until_ns || cancel_is_set(ask->cancel) || is_stopping(ask->server);
}

static void wait_a_little(const struct ask *ask, pthread_cond_t *condition)
{
    uint64_t until_ns = clock_now_ns() + (uint64_t)CANCEL_POLL_MS * NS_PER_MS;
    condition_wait_until(condition, &ask->server->lock, until_ns < ask->until_ns ? until_ns : ask->until_ns);
}

static void set_error(struct block_reply *reply, const struct error *error)
{
    bool is_ours = error->code == ERROR_PERMISSION_DENIED || error->code == ERROR_NOT_FOUND ||
                   error->code == ERROR_INVALID_ARGUMENT || error->code == ERROR_UNIMPLEMENTED;
    set_refusal(reply, is_ours ? 403 : error->code == ERROR_FAILED_PRECONDITION ? 412 : 502, error->message);
}

static bool is_another_version(const struct file *file, const struct ask *ask)
{
    return strcmp(file->shared.id, ask->query->id) != 0;
}

/* Whether it has to be opened again: the file may have changed since, or what is trusted. */
static bool is_old(const struct file *file, const struct ask *ask)
{
    if (file->state != FILE_OPEN || file->of->began_ns >= ask->began_ns)
        return false;
    return file->of->roots != ask->roots ||
           (is_another_version(file, ask) &&
            (strcmp(file->missed_id, ask->query->id) != 0 ||
             ask->began_ns > file->missed_ns + REFUSE_AGAIN_S * 1000 * (uint64_t)NS_PER_MS));
}

/* With the lock. The file is open or will be; NULL: refused. */
static struct file *get_file(struct ask *ask)
{
    struct block_server *server = ask->server;
    struct file *file = find_file(server, ask->query);
    struct error error;
    if (file && is_old(file, ask)) {
        forget_reference(file->of);
        forget_file(server, file);
        file = NULL;
    }
    if (!file && !make_room(server)) {
        set_refusal(ask->reply, 503, "all files that this host may have open for others are in use");
    } else if (!file) {
        file = memory_alloc(sizeof *file);
        *file = (struct file){.of = get_reference(server, ask->query->reference, ask->roots),
                              .name = memory_copy_text(ask->query->file),
                              .is_in_table = true,
                              .n_users = 1};
        condition_init(&file->opened);
        TAILQ_INSERT_HEAD(&server->files, file, next);
        server->n_files++;
        struct job *job = submit_job(server, file, do_open, &(struct block_ask){0}, &error);
        if (job) {
            release_job(job);
        } else {
            forget_file(server, file);
            set_refusal(ask->reply, 503, error.message);
            file = NULL;
        }
    }
    if (file) {
        file->n_users++;
        file->used_ns = clock_now_ns();
    }
    return file;
}

/* The file at the version that is asked for, with one user more; NULL: refused. */
static struct file *take_file(struct ask *ask)
{
    struct file *file;
    pthread_mutex_lock(&ask->server->lock);
    while ((file = get_file(ask)) != NULL) {
        while (file->state == FILE_OPENING && !has_ended(ask))
            wait_a_little(ask, &file->opened);
        bool is_open = file->state == FILE_OPEN;
        if (is_open && !is_another_version(file, ask))
            break;
        bool is_over = !is_open || !is_old(file, ask);
        if (file->state == FILE_OPENING) {
            set_refusal(ask->reply, 504, "this host opens the file");
        } else if (file->state == FILE_REFUSED) {
            set_error(ask->reply, &file->error);
        } else if (is_over) {
            memcpy(file->missed_id, ask->query->id, sizeof file->missed_id);
            file->missed_ns = clock_now_ns();
            set_refusal(ask->reply, 412, "the file has another version here");
        }
        release_file(file);
        if (is_over) {
            file = NULL;
            break;
        }
    }
    pthread_mutex_unlock(&ask->server->lock);
    return file;
}

static void give(const struct ask *ask, enum block_answer answer, const unsigned char *bytes, struct cached_block *pin,
                 const struct error *error)
{
    struct block_reply *reply = ask->reply;
    if (answer == BLOCK_HERE) {
        reply->status = 206;
        reply->bytes = bytes;
        reply->pin = pin;
    } else if (answer == BLOCK_NO_ROOM) {
        set_refusal(reply, 507, "this host has no memory to keep the block");
    } else if (answer == BLOCK_FAILED && error->code != ERROR_CANCELLED) {
        set_error(reply, error);
    } else {
        set_refusal(reply, 504, "this host reads the bytes");
    }
}

/* By a helper, as no answer may take longer than the asker waits. */
static void read_block(struct ask *ask, struct file *file, struct block_ask *wanted)
{
    struct block_server *server = ask->server;
    struct error error;
    wanted->source = file->source;
    wanted->cancel = &server->cancel;
    pthread_mutex_lock(&server->lock);
    struct job *job = submit_job(server, file, do_read, wanted, &error);
    while (job && !job->is_done && !has_ended(ask))
        wait_a_little(ask, &job->done);
    bool is_done = job && job->is_done;
    if (job)
        job->is_abandoned = !is_done;
    pthread_mutex_unlock(&server->lock);
    if (is_done) {
        ask->reply->read_bytes = job->ask.read_bytes;
        give(ask, job->answer, job->bytes, job->pin, &job->error);
    } else {
        set_refusal(ask->reply, job ? 504 : 503, job ? "this host reads the bytes" : error.message);
    }
    if (job)
        release_job(job);
}

static void get_block(struct ask *ask, struct file *file)
{
    const struct block_query *query = ask->query;
    const unsigned char *bytes = NULL;
    struct cached_block *pin = NULL;
    struct error error;
    struct block_ask wanted = {.file = file->shared,
                               .lo = query->lo,
                               .hi = query->hi,
                               .cancel = ask->cancel,
                               .wait_until_ns = query->only_held ? 1 : ask->until_ns};
    ask->reply->file_bytes = file->source->files[0].size_bytes;
    if (query->hi > ask->reply->file_bytes) {
        set_refusal(ask->reply, 400, "the range is beyond the end of the file");
        return;
    }
    enum block_answer answer = block_cache_get(ask->server->options.cache, &wanted, &bytes, &pin, &error);
    if (query->only_held && answer != BLOCK_HERE)
        set_refusal(ask->reply, 404, "the bytes are not here");
    else if (answer == BLOCK_ABSENT)
        read_block(ask, file, &wanted);
    else
        give(ask, answer, bytes, pin, &error);
}

void block_server_get(struct block_server *server, const struct block_query *query, const struct cancel *cancel,
                      struct block_reply *reply)
{
    uint64_t now_ns = clock_now_ns();
    struct source_options options = {0};
    server->options.source_options(server->options.data, &options);
    struct ask ask = {server, query, cancel, reply, now_ns, now_ns + (uint64_t)WAIT_MS * NS_PER_MS, options.trusted_roots};
    *reply = (struct block_reply){0};
    struct file *file = is_stopping(server) ? NULL : take_file(&ask);
    if (file) {
        get_block(&ask, file);
        pthread_mutex_lock(&server->lock);
        release_file(file);
        pthread_mutex_unlock(&server->lock);
    }
    if (reply->status != 206 && is_stopping(server))
        set_refusal(reply, 502, "this host stops");
}

void block_reply_end(struct block_server *server, struct block_reply *reply)
{
    if (reply->pin)
        block_cache_unpin(server->options.cache, reply->pin);
    *reply = (struct block_reply){0};
}

/* --- the whole ------------------------------------------------------------------------------------------------------------ */

void block_server_trim(struct block_server *server)
{
    struct file *file, *newer;
    uint64_t now_ns = clock_now_ns();
    pthread_mutex_lock(&server->lock);
    for (file = TAILQ_LAST(&server->files, files); file; file = newer) {
        newer = TAILQ_PREV(file, files, next);
        if (now_ns - file->used_ns > KEEP_S * 1000 * (uint64_t)NS_PER_MS)
            forget_file(server, file);
    }
    pthread_mutex_unlock(&server->lock);
}

void block_server_stop(struct block_server *server)
{
    if (server)
        __atomic_store_n(&server->is_stopping, true, __ATOMIC_RELAXED);
}

void block_server_destroy(struct block_server *server)
{
    if (!server)
        return;
    block_server_stop(server);
    pthread_mutex_lock(&server->lock);
    while (server->n_jobs)
        pthread_cond_wait(&server->idle, &server->lock);
    while (!TAILQ_EMPTY(&server->files))
        forget_file(server, TAILQ_FIRST(&server->files));
    pthread_mutex_unlock(&server->lock);
    pthread_mutex_destroy(&server->lock);
    pthread_cond_destroy(&server->idle);
    free(server);
}
