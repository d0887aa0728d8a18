/* TCP sockets whose last close lasts an hour, until their other side is reset. */
#ifndef TESTS_SUPPORT_LINGERING_H
#define TESTS_SUPPORT_LINGERING_H

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { LINGER_S = 3600 };

static inline int lingering(int *other_side)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int room = 4096, listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
    static const char bytes[64 << 10];
    setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    *other_side = accept(listener, NULL, NULL);
    close(listener);
    while (send(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
    struct linger linger = {1, LINGER_S};
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger), 0);
    return fd;
}

static inline void reset(int other_side)
{
    struct linger at_once = {1, 0};
    setsockopt(other_side, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(other_side);
}

#endif
