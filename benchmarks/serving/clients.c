// Clients that wait for their answers, each on a connection that is kept, in one thread: a request is the bytes of
// standard input, and of an answer no more is read than its status and its length.
//
//   clients HOST PORT CONNECTIONS SECONDS <request
//
// Prints: answers of status 200, other ones, seconds, and the 50th and 99th percentile in microseconds.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 1 << 24, LARGEST = 1 << 22 };

typedef struct {
    int socket;
    double begun;
    char *answer;
    size_t size;
} Client;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static int by_size(const void *left, const void *right) {
    const float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void ask(Client *client, const char *request, size_t size) {
    client->size = 0;
    client->begun = now();
    for (size_t sent = 0; sent < size;) {
        const ssize_t some = write(client->socket, request + sent, size - sent);
        if (some <= 0) fail("write");
        sent += (size_t)some;
    }
}

// The status of a whole answer; 0 where there is more of it to come.
static int whole(const Client *client) {
    const char *head = memmem(client->answer, client->size, "\r\n\r\n", 4);
    if (head == NULL) return 0;
    size_t length = 0;
    for (const char *line = client->answer; line < head; ++line)
        if (strncasecmp(line, "\ncontent-length:", 16) == 0) length = strtoul(line + 16, NULL, 10);
    return client->size >= (size_t)(head + 4 - client->answer) + length ? atoi(client->answer + 9) : 0;
}

int main(int count, char **arguments) {
    if (count != 5) return 2;
    const int connections = atoi(arguments[3]);
    const double seconds = atof(arguments[4]);
    char *request = malloc(LARGEST);
    float *latencies = malloc(MOST * sizeof *latencies);
    const size_t size = fread(request, 1, LARGEST, stdin);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(arguments[2]))};
    inet_pton(AF_INET, arguments[1], &address.sin_addr);
    Client *clients = calloc((size_t)connections, sizeof *clients);
    const int ready = epoll_create1(0);
    for (int i = 0; i < connections; ++i) {
        Client *client = clients + i;
        const int yes = 1;
        client->answer = malloc(LARGEST);
        client->socket = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(client->socket, (struct sockaddr *)&address, sizeof address)) fail("connect");
        setsockopt(client->socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
        epoll_ctl(ready, EPOLL_CTL_ADD, client->socket, &event);
    }
    const double begun = now();
    for (int i = 0; i < connections; ++i) ask(clients + i, request, size);
    long answered = 0, others = 0;
    double time = begun;
    while (time < begun + seconds) {
        struct epoll_event events[64];
        const int found = epoll_wait(ready, events, 64, 100);
        for (int i = 0; i < found; ++i) {
            Client *client = events[i].data.ptr;
            const ssize_t some = read(client->socket, client->answer + client->size, LARGEST - client->size);
            if (some <= 0) fail("read");
            client->size += (size_t)some;
            const int status = whole(client);
            if (status == 0) continue;
            time = now();
            if (status == 200 && answered < MOST) latencies[answered++] = (float)(1e6 * (time - client->begun));
            else ++others;
            ask(client, request, size);
        }
        time = now();
    }
    qsort(latencies, (size_t)answered, sizeof *latencies, by_size);
    if (answered == 0) return 1;
    printf("%ld %ld %.6f %.1f %.1f\n", answered, others, time - begun, latencies[answered / 2],
           latencies[answered * 99 / 100]);
}
