/* Rules, counters and broken devices; and the guard that keeps the fake out of real life. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake_private.h"

enum { MAX_FUNCTIONS = 64, NAME_CHARS = 64 };

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
_Thread_local int fake_device;

static struct {
    bool is_enabled;
    int n_devices;
    uint64_t device_bytes, delay_us;
    int delay_device; /* -1 = all */
    bool is_paused;
    pthread_cond_t resumed;
    char rule_function[NAME_CHARS]; /* "" = any */
    uint64_t rule_left;             /* 0 = no rule */
    int rule_code;
    bool rule_is_sticky;
    int broken[FAKE_MAX_DEVICES];
    unsigned n_working[FAKE_MAX_DEVICES]; /* streams in the middle of an operation */
    pthread_cond_t stopped;
    struct {
        char name[NAME_CHARS];
        uint64_t n_calls;
    } functions[MAX_FUNCTIONS];
    uint64_t n_calls;
} fake = {.delay_device = -1, .resumed = PTHREAD_COND_INITIALIZER, .stopped = PTHREAD_COND_INITIALIZER};

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

static void read_rule(const char *text)
{
    char function[NAME_CHARS], rest[NAME_CHARS] = "";
    unsigned long nth;
    int code;
    if (text && sscanf(text, "%63[^:]:%lu:%d:%63s", function, &nth, &code, rest) >= 3)
        fake_cuda_fail(strcmp(function, "any") == 0 ? NULL : function, nth, code, strcmp(rest, "sticky") == 0);
}

static void find_devices(void)
{
    const char *enabled = getenv("TENSORCAST_TEST_FAKE_CUDA");
    uint64_t n_devices = number("TENSORCAST_TEST_FAKE_CUDA_DEVICES", 2);
    fake.is_enabled = enabled && strcmp(enabled, "1") == 0;
    fake.device_bytes = number("TENSORCAST_TEST_FAKE_CUDA_MEMORY", 1 << 30);
    fake.n_devices = n_devices < FAKE_MAX_DEVICES ? (int)n_devices : FAKE_MAX_DEVICES;
}

__attribute__((constructor)) static void start(void)
{
    find_devices();
    fake.delay_us = number("TENSORCAST_TEST_FAKE_CUDA_DELAY_US", 0);
    read_rule(getenv("TENSORCAST_TEST_FAKE_CUDA_FAIL"));
    fprintf(stderr, "FAKE CUDA: this process has no GPU, only a test's imitation of one%s\n",
            fake.is_enabled ? "" : " (switched off: TENSORCAST_TEST_FAKE_CUDA is not 1)");
}

/* Under the lock. */
static void count(const char *function)
{
    size_t i = 0;
    while (i < MAX_FUNCTIONS - 1 && fake.functions[i].name[0] && strcmp(fake.functions[i].name, function) != 0)
        i++;
    snprintf(fake.functions[i].name, NAME_CHARS, "%s", function);
    fake.functions[i].n_calls++;
    fake.n_calls++;
}

/* Under the lock. A broken device touches no memory any more: the daemon may unmap what it was reading from. */
static void break_device(int device, int code)
{
    fake.broken[device] = code;
    while (fake.n_working[device] > 0)
        pthread_cond_wait(&fake.stopped, &fake_lock);
}

/* An event never fails but on a broken device. */
static bool breaks(const char *function)
{
    return fake.rule_is_sticky || strcmp(function, "stream") == 0 || strcmp(function, "cudaEventQuery") == 0 ||
           strcmp(function, "cudaEventRecord") == 0;
}

/* Under the lock. */
static int apply_rule(const char *function, int device)
{
    bool matches = fake.rule_left && (!fake.rule_function[0] || strcmp(fake.rule_function, function) == 0);
    if (!matches || --fake.rule_left > 0)
        return 0;
    if (breaks(function))
        break_device(device, fake.rule_code);
    return fake.rule_code;
}

int fake_call(const char *function)
{
    return fake_call_on(fake_device, function);
}

int fake_call_on(int device, const char *function)
{
    if (!fake.is_enabled)
        return cudaErrorStubLibrary;
    pthread_mutex_lock(&fake_lock);
    count(function);
    int code = fake.broken[device];
    if (!code)
        code = apply_rule(function, device);
    pthread_mutex_unlock(&fake_lock);
    return code;
}

void fake_stream_step(int device)
{
    pthread_mutex_lock(&fake_lock);
    while (fake.is_paused)
        pthread_cond_wait(&fake.resumed, &fake_lock);
    uint64_t delay_us = fake.delay_device < 0 || fake.delay_device == device ? fake.delay_us : 0;
    bool is_any = !fake.rule_function[0];
    if (!is_any)
        apply_rule("stream", device);
    pthread_mutex_unlock(&fake_lock);
    if (delay_us)
        nanosleep(&(struct timespec){(time_t)(delay_us / 1000000), (long)(delay_us % 1000000) * 1000}, NULL);
}

bool fake_work_begins(int device)
{
    pthread_mutex_lock(&fake_lock);
    bool may = !fake.broken[device];
    fake.n_working[device] += may;
    pthread_mutex_unlock(&fake_lock);
    return may;
}

void fake_work_ends(int device)
{
    pthread_mutex_lock(&fake_lock);
    fake.n_working[device]--;
    pthread_cond_broadcast(&fake.stopped);
    pthread_mutex_unlock(&fake_lock);
}

void fake_break(int device, int code)
{
    pthread_mutex_lock(&fake_lock);
    break_device(device, code);
    pthread_mutex_unlock(&fake_lock);
}

int fake_broken(int device)
{
    pthread_mutex_lock(&fake_lock);
    int code = fake.broken[device];
    pthread_mutex_unlock(&fake_lock);
    return code;
}

int fake_n_devices(void)
{
    return fake.n_devices;
}

uint64_t fake_device_bytes(void)
{
    return fake.device_bytes;
}

/* --- for tests ------------------------------------------------------------------------------------------------------ */

void fake_cuda_reset(void)
{
    fake_cuda_pause(false);
    fake_cuda_delay(0);
    fake_streams_drain();
    pthread_mutex_lock(&fake_lock);
    fake.rule_left = fake.n_calls = 0;
    fake.rule_function[0] = '\0';
    memset(fake.broken, 0, sizeof fake.broken);
    memset(fake.functions, 0, sizeof fake.functions);
    find_devices(); /* a test may have set it after we were loaded */
    pthread_mutex_unlock(&fake_lock);
}

void fake_cuda_fail(const char *function, uint64_t nth, int code, bool is_sticky)
{
    pthread_mutex_lock(&fake_lock);
    snprintf(fake.rule_function, NAME_CHARS, "%s", function ? function : "");
    fake.rule_left = nth;
    fake.rule_code = code;
    fake.rule_is_sticky = is_sticky;
    pthread_mutex_unlock(&fake_lock);
}

void fake_cuda_pause(bool paused)
{
    pthread_mutex_lock(&fake_lock);
    fake.is_paused = paused;
    pthread_cond_broadcast(&fake.resumed);
    pthread_mutex_unlock(&fake_lock);
}

void fake_cuda_delay_on(int device, uint64_t microseconds)
{
    pthread_mutex_lock(&fake_lock);
    fake.delay_device = device;
    fake.delay_us = microseconds;
    pthread_mutex_unlock(&fake_lock);
}

void fake_cuda_delay(uint64_t microseconds)
{
    fake_cuda_delay_on(-1, microseconds);
}

uint64_t fake_cuda_calls(const char *function)
{
    uint64_t n_calls = 0;
    pthread_mutex_lock(&fake_lock);
    for (size_t i = 0; function && i < MAX_FUNCTIONS && fake.functions[i].name[0]; i++)
        if (strcmp(fake.functions[i].name, function) == 0)
            n_calls = fake.functions[i].n_calls;
    if (!function)
        n_calls = fake.n_calls;
    pthread_mutex_unlock(&fake_lock);
    return n_calls;
}

struct fake_cuda_live fake_cuda_live(void)
{
    struct fake_cuda_live live = {0};
    pthread_mutex_lock(&fake_lock);
    fake_count_memory(&live);
    fake_count_streams(&live);
    pthread_mutex_unlock(&fake_lock);
    return live;
}
