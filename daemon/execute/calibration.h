/* What reading and copying cost on this host: built-in defaults, a copy measured once at start (a few ms), then learned
 * from the reports of real loads (exponentially weighted), per source device; kept in <state_dir>/calibration.json.
 * Loop thread only. */
#ifndef EXECUTE_CALIBRATION_H
#define EXECUTE_CALIBRATION_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "execute/engine.h"
#include "plan/cost.h"

struct calibration;

/* state_dir NULL = not kept. A damaged file is ignored with a warning. */
struct calibration *calibration_create(const char *state_dir);
void calibration_destroy(struct calibration *calibration); /* writes what was learned */
struct cost_constants calibration_get(const struct calibration *calibration, uint64_t device_id);
/* For runs that ended well and had the engine to themselves: the time of others would count as the device's. */
void calibration_learn(struct calibration *calibration, uint64_t device_id, const struct run_report *report);
/* Calls fn for every known device. */
void calibration_each(const struct calibration *calibration,
                      void (*fn)(void *data, uint64_t device_id, const struct cost_constants *constants), void *data);

enum { CALIBRATION_MAX_DEVICES = 64 };

/* The constants that depend on the device; values outside these limits are neither learned nor believed. */
struct calibrated {
    uint64_t device_id;
    struct cost_class cached, uncached;
    double fresh_bytes_per_ns;
};

struct calibration_range {
    double least, most;
};
extern const struct calibration_range calibration_request_ns, calibration_bytes_per_ns;

/* Fills up to CALIBRATION_MAX_DEVICES devices. No file = none. On error (damaged, of another version) there are none. */
int calibration_file_read(const char *path, struct calibrated devices[CALIBRATION_MAX_DEVICES], size_t *n_devices,
                          struct error *error);
int calibration_file_write(const char *path, const struct calibrated *devices, size_t n_devices, struct error *error);

#endif
