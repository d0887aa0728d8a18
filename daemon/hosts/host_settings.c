/* See host_settings.h. */
#include "hosts/host_settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/address.h"
#include "base/file_io.h"
#include "base/memory.h"
#include "base/signature.h"
#include "base/text.h"
#include "config/config_value.h"
#include "hosts/host_entry.h"

enum { FILE_MAX_BYTES = 256 << 10 };

static int fail_key(struct error *error, const char *key, const char *complaint, const char *shown)
{
    return fail(error, ERROR_INVALID_ARGUMENT, "CONFIG_INVALID_VALUE", "%s: %s%s%s", key, complaint, *shown ? ": " : "",
                shown);
}

/* *text: the file with a NUL behind it; "" for the path "". */
static int read_text(const char *key, const char *path, bool is_secret, char **text, size_t *bytes, struct error *error)
{
    struct stat info;
    char shown[TEXT_NAME_CHARS];
    *bytes = 0;
    *text = memory_alloc(1);
    if (!*path)
        return 0;
    text_escape(path, strlen(path), shown);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &info)) {
        int why = errno;
        if (fd >= 0)
            close(fd);
        return fail_errno(error, why, "%s: cannot read %s", key, shown);
    }
    free(*text);
    *text = memory_alloc(FILE_MAX_BYTES + 1);
    ssize_t count = S_ISREG(info.st_mode) ? file_io_read(fd, *text, FILE_MAX_BYTES) : -1;
    close(fd);
    if (count < 0)
        return fail_key(error, key, "it is no file that can be read", shown);
    if (is_secret && !config_path_is_credential(path) && (info.st_mode & (S_IRWXG | S_IRWXO)))
        return fail(error, ERROR_PERMISSION_DENIED, "SECRET_READABLE",
                    "%s: %s has mode %04o, and only its owner may read it; run chmod 600", key, shown, info.st_mode & 07777);
    *bytes = (size_t)count;
    (*text)[count] = '\0';
    return 0;
}

static int read_pair(const char *section, const char *const paths[3], char **texts[3], struct error *error)
{
    static const char *const names[] = {"cert_file", "key_file", "ca_file"};
    char keys[3][64];
    size_t bytes;
    for (int i = 0; i < 3; i++)
        snprintf(keys[i], sizeof keys[i], "%s.%s", section, names[i]);
    if (!*paths[0] != !*paths[1])
        return fail_key(error, keys[*paths[0] ? 1 : 0], "it is missing, and a certificate needs both", "");
    for (int i = 0; i < 3; i++)
        if (read_text(keys[i], paths[i], false, texts[i], &bytes, error))
            return -1;
    return 0;
}

static int read_cluster_key(const char *path, struct host_settings *settings, struct error *error)
{
    char *text;
    size_t bytes;
    int code = read_text("hosts.cluster_key_file", path, true, &text, &bytes, error);
    settings->has_key = code == 0 && *path;
    if (settings->has_key && bytes != HOST_KEY_BYTES)
        code = fail(
            error, ERROR_INVALID_ARGUMENT, "CONFIG_INVALID_VALUE",
            "hosts.cluster_key_file: %s has %zu bytes, and a cluster key has 32 bytes; head -c 32 /dev/urandom makes one",
            path, bytes);
    else if (settings->has_key)
        memcpy(settings->key, text, HOST_KEY_BYTES);
    signature_wipe(text, bytes);
    free(text);
    return code;
}

int host_settings_read(const struct config_hosts *config, struct host_settings *settings, struct error *error)
{
    struct address address;
    size_t bytes;
    char own[HOST_NAME_CHARS] = "";
    const char *const tls[] = {config->tls.cert_file, config->tls.key_file, config->tls.ca_file};
    const char *const etcd[] = {config->etcd.cert_file, config->etcd.key_file, config->etcd.ca_file};
    *settings = (struct host_settings){0};
    for (size_t i = 0; i < config->etcd.endpoints.n_items; i++) {
        const char *endpoint = config->etcd.endpoints.items[i], *first = config->etcd.endpoints.items[0];
        const char *colon = strrchr(endpoint, ':');
        size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;
        if ((strncasecmp(endpoint, "http://", 7) != 0 && strncasecmp(endpoint, "https://", 8) != 0) || !digits ||
            (colon[1 + digits] && strcmp(colon + 1 + digits, "/") != 0))
            return fail_key(error, "hosts.etcd.endpoints", "expected http://HOST:PORT or https://HOST:PORT", endpoint);
        if (strcspn(endpoint, ":") != strcspn(first, ":"))
            return fail_key(error, "hosts.etcd.endpoints", "all members speak TLS, or none", endpoint);
    }
    gethostname(own, sizeof own - 1);
    const char *name = *config->name ? config->name : own;
    if (!host_name_is_good(name))
        return fail_key(error, "hosts.name", "expected up to 63 letters, digits, '-', '_' and '.'", name);
    if (*config->domain && !host_name_is_good(config->domain))
        return fail_key(error, "hosts.domain", "expected up to 63 letters, digits, '-', '_' and '.'", config->domain);
    snprintf(settings->name, sizeof settings->name, "%s", name);
    snprintf(settings->domain, sizeof settings->domain, "%s", config->domain);
    if (*config->etcd.prefix != '/' || strlen(config->etcd.prefix) > 200)
        return fail_key(error, "hosts.etcd.prefix", "expected up to 200 characters that begin with '/'",
                        config->etcd.prefix);
    if (!tcp_address_parse(config->listen, &settings->listen))
        return fail_key(error, "hosts.listen", "expected ADDRESS:PORT, such as 10.0.0.7:7070 or [::]:0", config->listen);
    if (read_cluster_key(config->cluster_key_file, settings, error) ||
        read_pair("hosts.tls", tls, (char **[]){&settings->certificate, &settings->private_key, &settings->ca}, error) ||
        read_pair("hosts.etcd", etcd,
                  (char **[]){&settings->etcd_certificate, &settings->etcd_private_key, &settings->etcd_ca}, error))
        return -1;
    if (*settings->certificate && !*settings->ca)
        return fail_key(error, "hosts.tls.ca_file", "it is missing: other hosts are known by who signed them", "");
    if (*config->etcd.username && !*config->etcd.password_file)
        return fail_key(error, "hosts.etcd.password_file", "it is missing, and hosts.etcd.username is set", "");
    if (read_text("hosts.etcd.password_file", config->etcd.password_file, true, &settings->password, &bytes, error))
        return -1;
    settings->password[strcspn(settings->password, "\r\n")] = '\0';
    bool is_loopback = address_of_socket((const struct sockaddr *)&settings->listen.socket, &address) &&
                       address_kind(&address) == ADDRESS_THIS_HOST;
    if (!is_loopback && !settings->has_key && !*settings->certificate)
        return fail_key(error, "hosts.cluster_key_file",
                        "it or hosts.tls is required, because hosts.listen is no loopback address", config->listen);
    return 0;
}

void host_settings_fini(struct host_settings *settings)
{
    char *texts[] = {settings->certificate,      settings->private_key,      settings->ca,     settings->password,
                     settings->etcd_certificate, settings->etcd_private_key, settings->etcd_ca};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i])
            signature_wipe(texts[i], strlen(texts[i]));
        free(texts[i]);
    }
    signature_wipe(settings, sizeof *settings);
}
