/* Credentials of AWS in a clean environment, with files of the test, a clock of its own and scripted answers. One at a
 * time. Include it in the one file of a test, as fake_http.h. */
#ifndef TESTS_SUPPORT_AWS_SCENE_H
#define TESTS_SUPPORT_AWS_SCENE_H

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "source/s3/aws_credentials.h"
#include "tests/support/fake_http.h"

#include <cmocka.h>

#define AWS_SCENE_SECRET "never-to-be-seen"
#define AWS_SCENE_KEYS(key, token, expiration)                                                                              \
    "{\"Code\":\"Success\",\"AccessKeyId\":\"" key "\",\"SecretAccessKey\":\"" AWS_SCENE_SECRET "\",\"Token\":\"" token     \
    "\",\"Expiration\":\"" expiration "\",\"RoleArn\":null,\"n\":[1,{}]}"

static char aws_scene_folder[] = "/tmp/test_aws_credentials.XXXXXX";

static int64_t aws_scene_now_s;

static inline int64_t aws_scene_now(void)
{
    return aws_scene_now_s;
}

static inline const char *aws_scene_write(const char *name, const char *text)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", aws_scene_folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    return path;
}

static inline int aws_scene_clean(void **state)
{
    static const char *const names[] = {"AWS_ACCESS_KEY_ID",
                                        "AWS_SECRET_ACCESS_KEY",
                                        "AWS_SESSION_TOKEN",
                                        "AWS_SECURITY_TOKEN",
                                        "AWS_PROFILE",
                                        "AWS_DEFAULT_PROFILE",
                                        "AWS_ROLE_ARN",
                                        "AWS_ROLE_SESSION_NAME",
                                        "AWS_WEB_IDENTITY_TOKEN_FILE",
                                        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                                        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                        "AWS_CONTAINER_AUTHORIZATION_TOKEN",
                                        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                                        "AWS_EC2_METADATA_DISABLED",
                                        "AWS_EC2_METADATA_SERVICE_ENDPOINT",
                                        "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE",
                                        "AWS_ENDPOINT_URL",
                                        "AWS_ENDPOINT_URL_STS"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
    setenv("AWS_CONFIG_FILE", aws_scene_write("config", ""), 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", aws_scene_write("credentials", ""), 1);
    aws_scene_now_s = 1000000000;
    fake_reset(NULL);
    return 0;
}

static inline struct aws_credentials *aws_scene_create(const char *profile)
{
    struct aws_credentials_options options = {.profile = profile, .region = "eu-west-3", .now = aws_scene_now};
    return aws_credentials_create(&options);
}

static inline const char *aws_scene_get(struct aws_credentials *credentials)
{
    static char text[ERROR_MESSAGE_CHARS + 200];
    struct aws_keys keys;
    struct error error;
    if (aws_credentials_get(credentials, NULL, &keys, &error) < 0) {
        assert_null(strstr(error.message, AWS_SCENE_SECRET));
        assert_int_equal(keys.access_key != NULL, 0);
        snprintf(text, sizeof text, "%s: %s", error.reason, error.message);
        return text;
    }
    snprintf(text, sizeof text, "%s:%s:%s", keys.access_key ? keys.access_key : "anonymous",
             keys.secret_key ? keys.secret_key : "", keys.session_token ? keys.session_token : "");
    aws_keys_clear(&keys);
    return text;
}

static inline const char *aws_scene_get_once(const char *profile)
{
    struct aws_credentials *credentials = aws_scene_create(profile);
    const char *text = aws_scene_get(credentials);
    aws_credentials_destroy(credentials);
    return text;
}

static inline void aws_scene_contains(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in: %s", part, text);
}

static inline int aws_scene_open(void **state)
{
    (void)state;
    return mkdtemp(aws_scene_folder) ? 0 : -1;
}

static inline int aws_scene_close(void **state)
{
    static const char *const names[] = {"config", "credentials", "token", "ctoken"};
    char path[200];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", aws_scene_folder, names[i]);
        unlink(path);
    }
    return rmdir(aws_scene_folder);
}

#endif
