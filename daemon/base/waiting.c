#include "base/waiting.h"

#include <stdio.h>
#include <stddef.h>

#include "base/clock.h"
#include "base/text.h"

static _Thread_local struct waiting *current;

void waiting_init(struct waiting *waiting)
{
    *waiting = (struct waiting){0};
    pthread_mutex_init(&waiting->lock, NULL);
}

void waiting_fini(struct waiting *waiting)
{
    pthread_mutex_destroy(&waiting->lock);
}

struct waiting *waiting_enter(struct waiting *waiting)
{
    struct waiting *before = current;
    current = waiting;
    return before;
}

struct waiting *waiting_current(void)
{
    return current;
}

void waiting_begin(struct waiting *waiting, const char *text, uint64_t until_ns)
{
    if (!waiting)
        return;
    if (waiting->tell) {
        waiting->tell(waiting, text, until_ns);
        return;
    }
    pthread_mutex_lock(&waiting->lock);
    if (waiting->n_waits++ == 0)
        waiting->since_ns = clock_now_ns();
    waiting->until_ns = until_ns;
    snprintf(waiting->text, sizeof waiting->text, "%s", text);
    pthread_mutex_unlock(&waiting->lock);
}

void waiting_end(struct waiting *waiting)
{
    if (!waiting)
        return;
    if (waiting->tell) {
        waiting->tell(waiting, NULL, 0);
        return;
    }
    pthread_mutex_lock(&waiting->lock);
    waiting->n_waits -= waiting->n_waits > 0;
    pthread_mutex_unlock(&waiting->lock);
}

void waiting_follow(struct waiting *waiting, struct waiting *other)
{
    if (!waiting || waiting->tell || (other && other->tell))
        return;
    pthread_mutex_lock(&waiting->lock);
    waiting->follows = other;
    pthread_mutex_unlock(&waiting->lock);
}

bool waiting_read(struct waiting *waiting, char text[WAITING_TEXT_CHARS])
{
    const uint64_t now_ns = clock_now_ns(), shown_ns = WAITING_SHOWN_MS * (uint64_t)NS_PER_MS;
    pthread_mutex_lock(&waiting->lock);
    /* a wait for a known point is shown from its beginning when that is far away */
    bool is_long = now_ns - waiting->since_ns >= shown_ns || waiting->until_ns >= now_ns + shown_ns;
    bool shown = waiting->follows ? waiting_read(waiting->follows, text) : waiting->n_waits > 0 && is_long;
    if (shown && !waiting->follows && waiting->until_ns > now_ns)
        snprintf(text, WAITING_TEXT_CHARS, "%s in %.0f s", waiting->text, (double)(waiting->until_ns - now_ns) / 1e9);
    else if (shown && !waiting->follows)
        snprintf(text, WAITING_TEXT_CHARS, "%s", waiting->text);
    pthread_mutex_unlock(&waiting->lock);
    return shown;
}
