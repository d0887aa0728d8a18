/* Reads and writes calibration.json. Whatever is odd about the file makes all of it worthless: learning again costs a few
 * loads, believing nonsense costs every one. */
#include "calibration/calibration_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file_io.h"
#include "base/json.h"
#include "base/memory.h"

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
