#include "operators/operators.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/clock.h"
#include "base/condition.h"
#include "base/loop.h"
#include "base/memory.h"
#include "message/status_json.h"
#include "observe/log_recent.h"
#include "operators/http_port.h"
#include "operators/metrics.h"
#include "operators/page.h"
#include "operators/snapshot.h"

enum {
    GAP_LEAST_MS = 20,
    GAP_MOST_MS = 1000,
    GAP_OF_COST = 20,
    EVENT_EVERY_MS = 1000,
};

enum path { PATH_PAGE, PATH_METRICS, PATH_HEALTH, PATH_READY, PATH_STATUS, PATH_EVENTS, PATHS };
static const struct http_path paths[PATHS] = {[PATH_PAGE] = {.path = "/"},
                                              [PATH_METRICS] = {.path = "/metrics"},
                                              [PATH_HEALTH] = {.path = "/healthz"},
                                              [PATH_READY] = {.path = "/readyz"},
                                              [PATH_STATUS] = {.path = "/status.json"},
                                              [PATH_EVENTS] = {.path = "/events", .is_stream = true}};
static const struct status_limits no_lists = {0}, all_in_turns = {.rows = SIZE_MAX, .holders = 256, .in_turns = true},
                                  lists_of_events = {.rows = 100, .holders = 100};
static const uint64_t least_ns = GAP_LEAST_MS * (uint64_t)NS_PER_MS, most_ns = GAP_MOST_MS * (uint64_t)NS_PER_MS;

struct asked {
    STAILQ_ENTRY(asked) next;
    struct http_question *question;
    enum path path;
    bool wants_openmetrics;
    uint64_t since_ns;
};
STAILQ_HEAD(questions, asked);

struct batch { /* questions, and what the loop says to them */
    STAILQ_ENTRY(batch) next;
    struct questions questions;
    bool is_draining;
    struct snapshot *numbers, *all, *event; /* NULL = nothing of the batch wants it */
    uint64_t cost_ns;                       /* of the loop */
};

struct operators {
    const struct api *api;
    struct http_port *port;
    struct http_text *page;
    char policy[PAGE_POLICY_CHARS];
    char address[TCP_ADDRESS_CHARS];
    pthread_t thread;
    bool has_thread;
    struct loop_timer *timer;       /* the loop's, like these */
    uint64_t timer_ns;              /* when it comes; 0 = it does not */
    uint64_t next_ns, next_walk_ns; /* no snapshot is begun before, and none of all replicas */
    struct batch *walk;             /* of which the replicas come in turns; NULL = none */
    struct loop_task task, turn;
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t changed;
    struct questions waiting; /* for the loop */
    bool wants_event, is_posted, is_stopping;
    STAILQ_HEAD(, batch) batches; /* for the thread */
};

static void answer_text(struct asked *asked, unsigned status, const char *type, struct http_text *text)
{
    http_question_answer(asked->question, status, type, text);
    free(asked);
}

static void answer_words(struct asked *asked, unsigned status, const char *words)
{
    char *line = memory_print("%s\n", words);
    answer_text(asked, status, "text/plain; charset=utf-8", http_text_make(line, strlen(line)));
}

/* --- the loop's part -------------------------------------------------------------------------------------------------- */

static struct batch *make_batch(const struct operators *operators)
{
    struct batch *batch = memory_alloc(sizeof *batch);
    STAILQ_INIT(&batch->questions);
    batch->is_draining = operators->api->is_draining;
    return batch;
}

/* When the next may begin. */
static uint64_t hand_over(struct operators *operators, struct batch *batch)
{
    uint64_t gap_ns = GAP_OF_COST * batch->cost_ns;
    gap_ns = gap_ns < least_ns ? least_ns : gap_ns > most_ns ? most_ns : gap_ns;
    pthread_mutex_lock(&operators->lock);
    STAILQ_INSERT_TAIL(&operators->batches, batch, next);
    pthread_cond_signal(&operators->changed);
    pthread_mutex_unlock(&operators->lock);
    return clock_now_ns() + gap_ns;
}

/* The timer serves the next batch, at the earliest time that was wished for. */
static void come_back(struct operators *operators, uint64_t when_ns)
{
    uint64_t now_ns = clock_now_ns();
    if (operators->timer_ns && operators->timer_ns <= when_ns)
        return;
    operators->timer_ns = when_ns;
    loop_timer_start(operators->timer, when_ns > now_ns ? (when_ns - now_ns) / NS_PER_MS + 1 : 0, 0);
}

/* Questions for all replicas wait while a walk goes on, and for a while after it. Returns whether some do. */
static bool take_waiting(struct operators *operators, struct batch *batch, struct batch *walk)
{
    struct questions taken = STAILQ_HEAD_INITIALIZER(taken);
    struct asked *asked;
    bool may_walk = !operators->walk && clock_now_ns() >= operators->next_walk_ns;
    pthread_mutex_lock(&operators->lock);
    operators->is_posted = false;
    STAILQ_CONCAT(&taken, &operators->waiting);
    while ((asked = STAILQ_FIRST(&taken))) {
        STAILQ_REMOVE_HEAD(&taken, next);
        if (asked->path != PATH_STATUS)
            STAILQ_INSERT_TAIL(&batch->questions, asked, next);
        else if (may_walk)
            STAILQ_INSERT_TAIL(&walk->questions, asked, next);
        else
            STAILQ_INSERT_TAIL(&operators->waiting, asked, next);
    }
    bool some_wait = !STAILQ_EMPTY(&operators->waiting);
    pthread_mutex_unlock(&operators->lock);
    return some_wait;
}

static void take_turn(struct loop_task *task)
{
    struct operators *operators = (struct operators *)((char *)task - offsetof(struct operators, turn));
    struct batch *walk = operators->walk;
    if (!walk)
        return; /* it is stopped */
    uint64_t began_ns = clock_now_ns();
    bool has_more =
        snapshot_add_replicas(walk->all, operators->api, &all_in_turns, began_ns + OPERATORS_TURN_US * (uint64_t)1000);
    walk->cost_ns += clock_now_ns() - began_ns;
    if (has_more) {
        loop_post(operators->api->services.loop, &operators->turn);
        return;
    }
    operators->walk = NULL;
    operators->next_walk_ns = hand_over(operators, walk);
    come_back(operators, operators->next_walk_ns);
}

static void serve_batch(void *data)
{
    struct operators *operators = data;
    const struct api *api = operators->api;
    struct asked *asked;
    struct batch *batch = make_batch(operators), *walk = make_batch(operators);
    uint64_t began_ns = clock_now_ns();
    operators->timer_ns = 0;
    bool some_wait = take_waiting(operators, batch, walk), wants_numbers = false;
    STAILQ_FOREACH (asked, &batch->questions, next)
        wants_numbers |= asked->path == PATH_METRICS;
    pthread_mutex_lock(&operators->lock);
    bool wants_event = operators->wants_event;
    operators->wants_event = false;
    pthread_mutex_unlock(&operators->lock);
    batch->numbers = wants_numbers ? snapshot_make(api, &no_lists) : NULL;
    batch->event = wants_event ? snapshot_make(api, &lists_of_events) : NULL;
    batch->cost_ns = clock_now_ns() - began_ns;
    operators->next_ns = hand_over(operators, batch);
    if (some_wait && !operators->walk)
        come_back(operators, operators->next_walk_ns);
    if (STAILQ_EMPTY(&walk->questions)) {
        free(walk);
        return;
    }
    began_ns = clock_now_ns();
    walk->all = snapshot_make(api, &all_in_turns);
    walk->cost_ns = clock_now_ns() - began_ns;
    operators->walk = walk;
    loop_post(api->services.loop, &operators->turn);
}

static void on_task(struct loop_task *task)
{
    struct operators *operators = (struct operators *)((char *)task - offsetof(struct operators, task));
    if (!operators->timer)
        return; /* it is stopped, and has answered */
    if (clock_now_ns() >= operators->next_ns)
        serve_batch(operators);
    else
        come_back(operators, operators->next_ns);
}

/* --- questions -------------------------------------------------------------------------------------------------------- */

/* Under the lock. */
static void post_task(struct operators *operators)
{
    if (!operators->is_posted)
        loop_post(operators->api->services.loop, &operators->task);
    operators->is_posted = true;
}

/* On the port's thread. */
static void on_asked(void *data, size_t path, bool wants_openmetrics, struct http_question *question)
{
    struct operators *operators = data;
    if (path == PATH_PAGE) {
        http_question_answer(question, 200, "text/html; charset=utf-8", http_text_ref(operators->page));
        return;
    }
    struct asked *asked = memory_alloc(sizeof *asked);
    *asked = (struct asked){
        .question = question, .path = (enum path)path, .wants_openmetrics = wants_openmetrics, .since_ns = clock_now_ns()};
    pthread_mutex_lock(&operators->lock);
    bool is_stopping = operators->is_stopping;
    if (!is_stopping) {
        STAILQ_INSERT_TAIL(&operators->waiting, asked, next);
        post_task(operators);
    }
    pthread_mutex_unlock(&operators->lock);
    if (is_stopping)
        answer_words(asked, 503, "the daemon is stopping");
}

static void answer_metrics(struct asked *asked, const struct batch *batch)
{
    size_t length;
    char *text = metrics_text(batch->numbers, asked->wants_openmetrics, &length);
    answer_text(asked, 200,
                asked->wants_openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                         : "text/plain; version=0.0.4; charset=utf-8",
                http_text_make(text, length));
}

static void answer_status(struct asked *asked, const struct batch *batch)
{
    Tensorcast__Daemon__V1__StatusResponse *status = snapshot_status(batch->all);
    char *json = status_json(status);
    snapshot_free_status(status);
    answer_text(asked, 200, "application/json", http_text_make(json, strlen(json)));
}

/* The lists are short; how long they are in truth is told beside them. */
static void publish_event(struct operators *operators, const struct snapshot *snapshot)
{
    Tensorcast__Daemon__V1__StatusResponse *status = snapshot_status(snapshot);
    char *json = status_json(status);
    struct json_writer lines = {0};
    log_recent_write(&lines);
    struct json_writer budgets = {0};
    json_write_open(&budgets, '{');
    json_put_u64(&budgets, "staging", snapshot->staging_budget_bytes);
    json_put_u64(&budgets, "extent_cache", snapshot->extent_budget_bytes);
    json_put_u64(&budgets, "pool", snapshot->pool_budget_bytes);
    json_write_close(&budgets, '}');
    char *text = memory_print("event: state\n"
                              "data: {\"replicas\":%llu,\"loads\":%llu,\"budgets\":%s,\"status\":%s,\"events\":%s}\n\n",
                              (unsigned long long)snapshot->n_replicas, (unsigned long long)snapshot->n_loads, budgets.text,
                              json, lines.text);
    free(budgets.text);
    snapshot_free_status(status);
    free(json);
    free(lines.text);
    http_port_publish(operators->port, http_text_make(text, strlen(text)));
}

static void answer_batch(struct operators *operators, struct batch *batch)
{
    struct asked *asked;
    if (batch->event)
        publish_event(operators, batch->event);
    while ((asked = STAILQ_FIRST(&batch->questions))) {
        STAILQ_REMOVE_HEAD(&batch->questions, next);
        switch (asked->path) {
        case PATH_METRICS:
            answer_metrics(asked, batch);
            break;
        case PATH_STATUS:
            answer_status(asked, batch);
            break;
        case PATH_READY:
            if (batch->is_draining) {
                answer_words(asked, 503, "draining");
                break;
            }
            answer_words(asked, 200, "ready");
            break;
        default:
            answer_words(asked, 200, "ok");
        }
    }
    snapshot_free(batch->numbers);
    snapshot_free(batch->all);
    snapshot_free(batch->event);
    free(batch);
}

/* Those that have waited for too long; all of them when it stops. Under the lock, which is let go meanwhile. */
static void give_up_waiting(struct operators *operators)
{
    struct asked *asked;
    while ((asked = STAILQ_FIRST(&operators->waiting)) &&
           (operators->is_stopping || clock_now_ns() - asked->since_ns > OPERATORS_PATIENCE_MS * (uint64_t)NS_PER_MS)) {
        STAILQ_REMOVE_HEAD(&operators->waiting, next);
        pthread_mutex_unlock(&operators->lock);
        answer_words(asked, 503, operators->is_stopping ? "the daemon is stopping" : "the daemon's loop does not turn");
        pthread_mutex_lock(&operators->lock);
    }
}

/* What is to be done now and then. Under the lock, which is let go meanwhile. */
static void look_around(struct operators *operators, uint64_t *event_ns)
{
    pthread_mutex_unlock(&operators->lock);
    http_port_sweep(operators->port);
    bool has_streams = http_port_streams(operators->port) > 0;
    pthread_mutex_lock(&operators->lock);
    if (!has_streams || clock_now_ns() < *event_ns || operators->is_stopping)
        return;
    *event_ns = clock_now_ns() + EVENT_EVERY_MS * (uint64_t)NS_PER_MS;
    operators->wants_event = true;
    post_task(operators);
}

static void *serve(void *data)
{
    struct operators *operators = data;
    uint64_t look_ns = 0, event_ns = 0;
    pthread_mutex_lock(&operators->lock);
    for (;;) {
        struct batch *batch = STAILQ_FIRST(&operators->batches);
        give_up_waiting(operators);
        if (!batch && operators->is_stopping)
            break;
        if (!batch) {
            condition_wait_until(&operators->changed, &operators->lock, look_ns);
        } else {
            STAILQ_REMOVE_HEAD(&operators->batches, next);
            pthread_mutex_unlock(&operators->lock);
            answer_batch(operators, batch);
            pthread_mutex_lock(&operators->lock);
        }
        if (clock_now_ns() < look_ns)
            continue;
        look_ns = clock_now_ns() + HTTP_SWEEP_MS * (uint64_t)NS_PER_MS;
        look_around(operators, &event_ns);
    }
    pthread_mutex_unlock(&operators->lock);
    return NULL;
}

/* --- from start to stop ------------------------------------------------------------------------------------------------ */

int operators_open(const struct api *api, struct operators **made, struct error *error)
{
    const char *wanted = api->services.config->server.metrics_address;
    struct http_port_options options = {.paths = paths, .n_paths = PATHS, .asked = on_asked};
    struct tcp_address bound;
    if (!*wanted)
        return 0;
    tcp_address_parse(wanted, &options.listen); /* the configuration takes nothing else */
    struct operators *operators = memory_alloc(sizeof *operators);
    operators->api = api;
    operators->task.run = on_task;
    operators->turn.run = take_turn;
    STAILQ_INIT(&operators->waiting);
    STAILQ_INIT(&operators->batches);
    pthread_mutex_init(&operators->lock, NULL);
    condition_init(&operators->changed);
    operators->page = page_text();
    options.content_security_policy = page_policy(operators->policy);
    options.data = operators;
    *made = operators;
    log_recent_keep();
    if (http_port_open(&options, &bound, &operators->port, error) != 0)
        return -1;
    tcp_address_print(&bound, operators->address);
    operators->timer = loop_timer_create(api->services.loop, serve_batch, operators);
    if (pthread_create(&operators->thread, NULL, serve, operators))
        abort(); /* at start only */
    operators->has_thread = true;
    return http_port_start(operators->port, error);
}

const char *operators_address(const struct operators *operators)
{
    return operators ? operators->address : "";
}

void operators_stop(struct operators *operators)
{
    if (!operators)
        return;
    pthread_mutex_lock(&operators->lock);
    if (operators->walk) { /* its questions wait again */
        STAILQ_CONCAT(&operators->waiting, &operators->walk->questions);
        snapshot_free(operators->walk->all);
        free(operators->walk);
        operators->walk = NULL;
    }
    operators->is_stopping = true;
    pthread_cond_signal(&operators->changed);
    pthread_mutex_unlock(&operators->lock);
    if (operators->has_thread)
        pthread_join(operators->thread, NULL);
    http_port_close(operators->port);
    loop_timer_destroy(operators->timer);
    operators->timer = NULL;
}

void operators_destroy(struct operators *operators)
{
    if (!operators)
        return;
    log_recent_forget();
    http_text_unref(operators->page);
    pthread_cond_destroy(&operators->changed);
    pthread_mutex_destroy(&operators->lock);
    free(operators);
}
