/* Four threads that take turns through barriers, a mutex and a condition: threads ROUNDS MILLISECONDS. */

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS = 4, HASHES = 200000 };

static pthread_barrier_t together;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static uint64_t sums[THREADS];
static _Thread_local uint64_t own;
static long rounds;
static struct timespec pause_time;
static int turn;

static uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ULL;
    return x ^ (x >> 33);
}

/* Each thread in its turn adds to what all before it have found. */
static void take_turn(int mine, long round)
{
    pthread_mutex_lock(&lock);
    while (turn != mine)
        pthread_cond_wait(&turned, &lock);
    sums[mine] = mix(sums[(mine + THREADS - 1) % THREADS] ^ own);
    printf("round %ld thread %d sum %016llx\n", round, mine, (unsigned long long)sums[mine]);
    fflush(stdout);
    turn = (turn + 1) % THREADS;
    pthread_cond_broadcast(&turned);
    pthread_mutex_unlock(&lock);
}

static void *work(void *argument)
{
    int mine = (int)(intptr_t)argument;

    own = (uint64_t)mine + 1;
    for (long round = 0; round < rounds; round++) {
        for (int i = 0; i < HASHES; i++)
            own = mix(own + (uint64_t)i);
        take_turn(mine, round);
        nanosleep(&pause_time, NULL);
        pthread_barrier_wait(&together);
    }
    return NULL;
}

int main(int count, char **words)
{
    pthread_t threads[THREADS];

    if (count != 3)
        return 2;
    rounds = strtol(words[1], NULL, 10);
    long milliseconds = strtol(words[2], NULL, 10);
    pause_time.tv_sec = milliseconds / 1000;
    pause_time.tv_nsec = milliseconds % 1000 * 1000000;
    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i))
            return 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("done after %ld rounds: %016llx\n", rounds, (unsigned long long)sums[THREADS - 1]);
    return 0;
}
