/* Learns from what loads report. A load teaches one thing: the constant that its time mostly consisted of, so that one
 * equation is not asked for two unknowns. What it says about the other one is subtracted as known.
 *
 * Ignored: loads too small to measure anything, loads that took bytes from others (their time was partly another
 * else's), half-cached loads, values beyond any hardware, and outliers. A value eight times off is an outlier (a stalled
 * disk, a stopped process) until it has come three times in a row; then the device is what has changed. */
#include "execute/calibration.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/file_io.h"
#include "base/huge_pages.h"
#include "base/json.h"
#include "base/memory.h"
#include "observe/log.h"

enum {
    LEAST_BYTES = 4 << 20, /* below both of these a load is tiny */
    LEAST_REQUESTS = 2000,
    OUTLIERS_IN_A_ROW = 3,
    MOST_WEIGHT_SAMPLES = 6, /* the newest sample never counts for less than 1/8 */
    MAX_PATH_BYTES = 4096,
    COPY_BYTES = 4 << 20, /* larger than a second-level cache */
    COPY_PIECE_BYTES = 64 << 10,
    COPY_ROUNDS = 4,
};
static const double OUTLIER_FACTOR = 8;
static const double DOMINANT_SHARE = 0.8;
static const double PURE_SHARE = 0.95; /* a load counts as cached, or as uncached, from here on */

enum { FILE_VERSION = 1, MAX_FILE_BYTES = 64 << 10, ARENA_CAP_BYTES = 64 << 10 };

/* From a fast processor to a slow network, with room. */
const struct calibration_range calibration_request_ns = {.least = 10, .most = 1e9};
const struct calibration_range calibration_bytes_per_ns = {.least = 1e-4, .most = 1e3};

static bool take_scaled(struct json *json, double scale, const struct calibration_range *range, double *value)
{
    uint64_t number;
    if (!json_take_u64(json, &number))
        return false;
    *value = (double)number / scale;
    return (*value >= range->least && *value <= range->most) || json_fail(json, "value out of range");
}

static bool take_rate(struct json *json, double *bytes_per_ns)
{
    return take_scaled(json, 1e9, &calibration_bytes_per_ns, bytes_per_ns);
}

static bool take_class(struct json *json, struct cost_class *class)
{
    struct json_string key;
    json_begin_object(json);
    while (json_next_key(json, &key)) {
        if (json_string_is(&key, "request_ps"))
            take_scaled(json, 1e3, &calibration_request_ns, &class->request_ns);
        else if (json_string_is(&key, "bytes_per_s"))
            take_rate(json, &class->bytes_per_ns);
        else if (json_string_is(&key, "samples"))
            json_take_u64(json, &class->samples);
        else
            json_fail(json, "unknown key");
    }
    return json_ok(json);
}

static bool take_device(struct json *json, struct calibrated *device)
{
    struct json_string key;
    *device = (struct calibrated){.cached = cost_defaults.cached,
                                  .uncached = cost_defaults.uncached,
                                  .fresh_bytes_per_ns = cost_defaults.fresh_bytes_per_ns};
    json_begin_object(json);
    while (json_next_key(json, &key)) {
        if (json_string_is(&key, "device"))
            json_take_u64(json, &device->device_id);
        else if (json_string_is(&key, "cached"))
            take_class(json, &device->cached);
        else if (json_string_is(&key, "uncached"))
            take_class(json, &device->uncached);
        else if (json_string_is(&key, "fresh_bytes_per_s"))
            take_rate(json, &device->fresh_bytes_per_ns);
        else
            json_fail(json, "unknown key");
    }
    return json_ok(json);
}

static bool take_devices(struct json *json, struct calibrated *devices, size_t *n_devices)
{
    json_begin_array(json);
    while (json_next_item(json)) {
        if (*n_devices == CALIBRATION_MAX_DEVICES)
            return json_fail(json, "too many devices");
        take_device(json, &devices[(*n_devices)++]);
    }
    return json_ok(json);
}

static bool take_file(struct json *json, struct calibrated *devices, size_t *n_devices)
{
    struct json_string key;
    uint64_t version = 0;
    json_begin_object(json);
    while (json_next_key(json, &key)) {
        if (json_string_is(&key, "version"))
            json_take_u64(json, &version);
        else if (json_string_is(&key, "devices"))
            take_devices(json, devices, n_devices);
        else
            json_fail(json, "unknown key");
    }
    return json_end(json) && (version == FILE_VERSION || json_fail(json, "unknown version"));
}

static int parse(const char *path, const char *bytes, size_t length, struct calibrated *devices, size_t *n_devices,
                 struct error *error)
{
    struct arena arena;
    struct json json;
    char what[JSON_ERROR_CHARS];
    arena_init(&arena, ARENA_CAP_BYTES);
    json_init(&json, bytes, length, &arena);
    int rc = 0;
    if (!take_file(&json, devices, n_devices)) {
        *n_devices = 0;
        rc = fail(error, ERROR_DATA_LOSS, "CALIBRATION_DAMAGED", "%s is damaged: %s", path, json_error(&json, what));
    }
    arena_fini(&arena);
    return rc;
}

int calibration_file_read(const char *path, struct calibrated devices[CALIBRATION_MAX_DEVICES], size_t *n_devices,
                          struct error *error)
{
    *n_devices = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? 0 : fail_errno(error, errno, "cannot open %s", path);
    char *bytes = memory_alloc(MAX_FILE_BYTES + 1);
    ssize_t length = file_io_read(fd, bytes, MAX_FILE_BYTES + 1);
    int rc;
    if (length < 0)
        rc = fail_errno(error, errno, "cannot read %s", path);
    else if (length > MAX_FILE_BYTES)
        rc = fail(error, ERROR_DATA_LOSS, "CALIBRATION_DAMAGED", "%s is longer than %d bytes", path, MAX_FILE_BYTES);
    else
        rc = parse(path, bytes, (size_t)length, devices, n_devices, error);
    free(bytes);
    close(fd);
    return rc;
}

static void write_class(struct json_writer *writer, const char *key, const struct cost_class *class)
{
    json_put_open(writer, key, '{');
    json_put_u64(writer, "request_ps", (uint64_t)(class->request_ns * 1e3));
    json_put_u64(writer, "bytes_per_s", (uint64_t)(class->bytes_per_ns * 1e9));
    json_put_u64(writer, "samples", class->samples);
    json_write_close(writer, '}');
}

static char *format(const struct calibrated *devices, size_t n_devices, size_t *length)
{
    struct json_writer writer = {0};
    json_write_open(&writer, '{');
    json_put_u64(&writer, "version", FILE_VERSION);
    json_put_open(&writer, "devices", '[');
    for (const struct calibrated *device = devices; device < devices + n_devices; device++) {
        json_write_open(&writer, '{');
        json_put_u64(&writer, "device", device->device_id);
        json_put_u64(&writer, "fresh_bytes_per_s", (uint64_t)(device->fresh_bytes_per_ns * 1e9));
        write_class(&writer, "cached", &device->cached);
        write_class(&writer, "uncached", &device->uncached);
        json_write_close(&writer, '}');
    }
    json_write_close(&writer, ']');
    json_write_close(&writer, '}');
    *length = writer.length;
    return writer.text;
}

int calibration_file_write(const char *path, const struct calibrated *devices, size_t n_devices, struct error *error)
{
    size_t length;
    char *text = format(devices, n_devices, &length);
    int failure = file_io_replace(AT_FDCWD, path, text, length, true) < 0 ? errno : 0;
    free(text);
    return failure ? fail_errno(error, failure, "cannot write %s", path) : 0;
}

struct learner {
    struct calibrated known;
    unsigned cached_outliers, uncached_outliers, fresh_outliers; /* in a row */
    uint64_t fresh_samples;
};

struct calibration {
    char path[MAX_PATH_BYTES];                       /* "" = not kept */
    struct learner devices[CALIBRATION_MAX_DEVICES]; /* the one learned from last first */
    size_t n_devices;
    double copy_bytes_per_ns;
    bool has_learned;
};

/* In huge pages, as the memory of loads is; small ones would take as long to fault in as all the rest of a start. */
static double measure_copy(void)
{
    unsigned char *from = huge_pages_map(2 * (uint64_t)COPY_BYTES);
    uint64_t best_ns = UINT64_MAX;
    if (!from)
        return cost_defaults.copy_bytes_per_ns;
    unsigned char *to = from + COPY_BYTES;
    memset(from, 1, 2 * (size_t)COPY_BYTES); /* page faults are another constant */
    for (int round = 0; round < COPY_ROUNDS; round++) {
        uint64_t start_ns = clock_now_ns();
        for (size_t at = 0; at < COPY_BYTES; at += COPY_PIECE_BYTES)
            memcpy(to + at, from + at, COPY_PIECE_BYTES);
        __asm__ volatile("" : : "r"(to) : "memory"); /* keeps the copies, which no code reads */
        uint64_t took_ns = clock_now_ns() - start_ns;
        best_ns = took_ns < best_ns ? took_ns : best_ns;
    }
    munmap(from, 2 * (size_t)COPY_BYTES);
    return best_ns ? (double)COPY_BYTES / (double)best_ns : cost_defaults.copy_bytes_per_ns;
}

struct calibration *calibration_create(const char *state_dir)
{
    struct calibration *calibration = memory_alloc(sizeof *calibration);
    calibration->copy_bytes_per_ns = measure_copy();
    if (!state_dir)
        return calibration;
    struct calibrated devices[CALIBRATION_MAX_DEVICES] = {0};
    struct error error;
    int length = snprintf(calibration->path, sizeof calibration->path, "%s/calibration.json", state_dir);
    if ((size_t)length >= sizeof calibration->path)
        calibration->path[0] = 0;
    else if (calibration_file_read(calibration->path, devices, &calibration->n_devices, &error))
        log_at_of(LOG_WARN, "calibration_ignored", LOG_NOBODY, LOG_TEXT("path", calibration->path),
                  LOG_TEXT("error", error.message));
    for (size_t i = 0; i < calibration->n_devices; i++)
        calibration->devices[i].known = devices[i];
    return calibration;
}

void calibration_destroy(struct calibration *calibration)
{
    struct calibrated devices[CALIBRATION_MAX_DEVICES];
    struct error error;
    for (size_t i = 0; i < calibration->n_devices; i++)
        devices[i] = calibration->devices[i].known;
    if (calibration->path[0] && calibration->has_learned &&
        calibration_file_write(calibration->path, devices, calibration->n_devices, &error))
        log_at_of(LOG_WARN, "calibration_not_kept", LOG_NOBODY, LOG_TEXT("path", calibration->path),
                  LOG_TEXT("error", error.message));
    free(calibration);
}

/* n_devices when nothing is known of it. */
static size_t find_device(const struct calibration *calibration, uint64_t device_id)
{
    size_t i = 0;
    while (i < calibration->n_devices && calibration->devices[i].known.device_id != device_id)
        i++;
    return i;
}

/* The first of the table from now on. When that is full the last one, not learned from for longest, is forgotten. */
static struct learner *find_or_add(struct calibration *calibration, uint64_t device_id)
{
    size_t n_before = find_device(calibration, device_id);
    bool is_known = n_before < calibration->n_devices;
    struct learner *first = calibration->devices, found = is_known ? first[n_before] : (struct learner){0};
    if (!is_known && n_before < CALIBRATION_MAX_DEVICES)
        calibration->n_devices++;
    else if (!is_known)
        n_before--;
    memmove(first + 1, first, n_before * sizeof *first);
    *first = found;
    if (is_known)
        return first;
    first->known = (struct calibrated){.device_id = device_id,
                                       .cached = cost_defaults.cached,
                                       .uncached = cost_defaults.uncached,
                                       .fresh_bytes_per_ns = cost_defaults.fresh_bytes_per_ns};
    return first;
}

static struct cost_constants constants_of(const struct calibration *calibration, const struct calibrated *known)
{
    struct cost_constants constants = cost_defaults;
    constants.copy_bytes_per_ns = calibration->copy_bytes_per_ns;
    if (!known)
        return constants;
    constants.cached = known->cached;
    constants.uncached = known->uncached;
    constants.fresh_bytes_per_ns = known->fresh_bytes_per_ns;
    /* both depend on the size of the page cache's folios, and loads that skip much are too rare to learn from */
    constants.skip_bytes_per_ns *= known->cached.bytes_per_ns / cost_defaults.cached.bytes_per_ns;
    return constants;
}

struct cost_constants calibration_get(const struct calibration *calibration, uint64_t device_id)
{
    size_t i = find_device(calibration, device_id);
    return constants_of(calibration, i < calibration->n_devices ? &calibration->devices[i].known : NULL);
}

void calibration_each(const struct calibration *calibration,
                      void (*fn)(void *data, uint64_t device_id, const struct cost_constants *constants), void *data)
{
    for (size_t i = 0; i < calibration->n_devices; i++) {
        struct cost_constants constants = constants_of(calibration, &calibration->devices[i].known);
        fn(data, calibration->devices[i].known.device_id, &constants);
    }
}

/* Moves *value towards the sample. Returns false when the sample is ignored. */
static bool learn_value(double *value, double sample, const struct calibration_range *range, uint64_t n_samples,
                        unsigned *outliers)
{
    if (!(sample >= range->least && sample <= range->most)) /* not a number is no sample either */
        return false;
    bool far = sample > *value * OUTLIER_FACTOR || sample < *value / OUTLIER_FACTOR;
    if (far && ++*outliers < OUTLIERS_IN_A_ROW)
        return false;
    *outliers = 0;
    double counted = (double)(n_samples < MOST_WEIGHT_SAMPLES ? n_samples : MOST_WEIGHT_SAMPLES);
    *value = far ? sample : *value + (sample - *value) / (counted + 2);
    return true;
}

/* requests * request_ns + bytes / bytes_per_ns = reading_ns: solved for the term that dominates, if one does. */
static bool learn_class(struct cost_class *class, unsigned *outliers, uint64_t requests, double bytes, double reading_ns)
{
    double requests_ns = (double)requests * class->request_ns, bytes_ns = bytes / class->bytes_per_ns;
    double bytes_share = bytes_ns / (requests_ns + bytes_ns);
    bool learned = false;
    if (bytes_share >= DOMINANT_SHARE)
        learned = learn_value(&class->bytes_per_ns, bytes / (reading_ns - requests_ns), &calibration_bytes_per_ns,
                              class->samples, outliers);
    else if (bytes_share <= 1 - DOMINANT_SHARE)
        learned = learn_value(&class->request_ns, (reading_ns - bytes_ns) / (double)requests, &calibration_request_ns,
                              class->samples, outliers);
    class->samples += learned;
    return learned;
}

/* Bytes that were read only to be skipped are quicker; counted as so many wanted ones. */
static double cached_bytes(const struct run_report *report)
{
    uint64_t placed = report->direct_bytes + report->copied_bytes;
    uint64_t skipped = report->read_bytes > placed ? report->read_bytes - placed : 0;
    return (double)(report->read_bytes - skipped) +
           (double)skipped * cost_defaults.cached.bytes_per_ns / cost_defaults.skip_bytes_per_ns;
}

static bool learn_reading(struct learner *learner, const struct run_report *report, double working_ns)
{
    double cached_share = (double)report->cached_bytes / (double)report->read_bytes;
    if (cached_share >= PURE_SHARE)
        return learn_class(&learner->known.cached, &learner->cached_outliers, report->requests, cached_bytes(report),
                           (double)report->execute_ns * (double)report->read_ns / working_ns);
    if (cached_share <= 1 - PURE_SHARE) /* whatever else is done is done while the device works */
        return learn_class(&learner->known.uncached, &learner->uncached_outliers, report->requests,
                           (double)report->read_bytes, (double)report->execute_ns);
    return false;
}

static bool learn_fresh(struct learner *learner, const struct run_report *report, double working_ns)
{
    double placed = (double)(report->direct_bytes + report->copied_bytes);
    double preparing_ns = (double)report->execute_ns * (double)report->prepare_ns / working_ns;
    if (placed < LEAST_BYTES || report->prepare_ns == 0)
        return false;
    bool learned = learn_value(&learner->known.fresh_bytes_per_ns, placed / preparing_ns, &calibration_bytes_per_ns,
                               learner->fresh_samples, &learner->fresh_outliers);
    learner->fresh_samples += learned;
    return learned;
}

void calibration_learn(struct calibration *calibration, uint64_t device_id, const struct run_report *report)
{
    bool tiny = report->read_bytes < LEAST_BYTES && report->requests < LEAST_REQUESTS;
    if (tiny || report->read_bytes == 0 || report->requests == 0 || report->shared_bytes || report->execute_ns == 0)
        return;
    double working_ns = (double)report->read_ns + (double)report->copy_ns + (double)report->prepare_ns;
    struct learner *learner = working_ns > 0 ? find_or_add(calibration, device_id) : NULL;
    if (!learner)
        return;
    calibration->has_learned |= learn_reading(learner, report, working_ns);
    calibration->has_learned |= learn_fresh(learner, report, working_ns);
}
