/* A team of threads for the copy and the FLOP loop; it is not the library's pool, whose speed is what is
 * measured. Called by copy.c and measure.c. SPDX-License-Identifier: MIT */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "copy.h"

struct team {
	pthread_mutex_t lock;
	pthread_cond_t begin, end;
	void (*job)(void *arg, int thread);
	void *arg;
	unsigned round; /* of jobs; a worker waits for the next */
	int running;
	bool over;
	int threads, started;
	pthread_t *workers;
};

struct worker {
	struct team *team;
	int thread;
};

static void *work(void *arg)
{
	struct worker worker = *(struct worker *)arg;
	struct team *team = worker.team;
	free(arg);
	unsigned seen = 0;
	(void)pthread_mutex_lock(&team->lock);
	for (;;) {
		while (team->round == seen && !team->over)
			(void)pthread_cond_wait(&team->begin, &team->lock);
		if (team->over)
			break;
		seen = team->round;
		(void)pthread_mutex_unlock(&team->lock);
		team->job(team->arg, worker.thread);
		(void)pthread_mutex_lock(&team->lock);
		if (--team->running == 0)
			(void)pthread_cond_signal(&team->end);
	}
	(void)pthread_mutex_unlock(&team->lock);
	return NULL;
}

static bool start_worker(struct team *team)
{
	struct worker *worker = malloc(sizeof *worker);
	if (!worker)
		return false;
	*worker = (struct worker){team, team->started + 1};
	int error = pthread_create(&team->workers[team->started], NULL, work, worker);
	if (error) {
		free(worker);
		errno = error;
		return false;
	}
	team->started++;
	return true;
}

struct team *team_create(int threads)
{
	struct team *team = calloc(1, sizeof *team);
	if (!team)
		return NULL;
	team->threads = threads;
	team->workers = calloc((size_t)threads, sizeof *team->workers);
	(void)pthread_mutex_init(&team->lock, NULL);
	(void)pthread_cond_init(&team->begin, NULL);
	(void)pthread_cond_init(&team->end, NULL);
	bool fine = team->workers != NULL;
	for (int i = 1; i < threads && fine; i++)
		fine = start_worker(team);
	if (fine)
		return team;
	int error = errno;
	team_destroy(team);
	errno = error;
	return NULL;
}

void team_destroy(struct team *team)
{
	if (!team)
		return;
	(void)pthread_mutex_lock(&team->lock);
	team->over = true;
	(void)pthread_cond_broadcast(&team->begin);
	(void)pthread_mutex_unlock(&team->lock);
	for (int i = 0; i < team->started; i++)
		(void)pthread_join(team->workers[i], NULL);
	(void)pthread_mutex_destroy(&team->lock);
	(void)pthread_cond_destroy(&team->begin);
	(void)pthread_cond_destroy(&team->end);
	free(team->workers);
	free(team);
}

int team_threads(const struct team *team)
{
	return team->threads;
}

void team_run(struct team *team, void (*job)(void *arg, int thread), void *arg)
{
	(void)pthread_mutex_lock(&team->lock);
	team->job = job;
	team->arg = arg;
	team->running = team->started;
	team->round++;
	(void)pthread_cond_broadcast(&team->begin);
	(void)pthread_mutex_unlock(&team->lock);
	job(arg, 0);
	(void)pthread_mutex_lock(&team->lock);
	while (team->running)
		(void)pthread_cond_wait(&team->end, &team->lock);
	(void)pthread_mutex_unlock(&team->lock);
}
