/* Learns from what loads report. A load teaches one thing: the constant that its time mostly consisted of, so that one
 * equation is not asked for two unknowns. What it says about the other one is subtracted as known.
 *
 * Ignored: loads too small to measure anything, loads that took bytes from others (their time was partly somebody
 * else's), half-cached loads, values beyond any hardware, and outliers. A value eight times off is an outlier (a stalled
 * disk, a stopped process) until it has come three times in a row; then the device is what has changed. */
#include "calibration/calibration.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/memory.h"
#include "calibration/calibration_file.h"
#include "base/huge_pages.h"
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
        __asm__ volatile("" : : "r"(to) : "memory"); /* the copies are wanted although nobody reads them */
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
        log_warn("calibration_ignored", LOG_TEXT("path", calibration->path), LOG_TEXT("error", error.message));
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
        log_warn("calibration_not_kept", LOG_TEXT("path", calibration->path), LOG_TEXT("error", error.message));
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
