/* The unit test of NAME: `midspan cc test NAME.h` compiles and runs it. It ends with 0 if all holds. */
#include <stdio.h>

#include "NAME.h"

static int failed;

#define CHECK(what)                                                                                \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			printf("%s:%d: %s does not hold\n", __FILE__, __LINE__, #what);            \
			failed = 1;                                                                \
		}                                                                                  \
	} while (0)

static const struct cc_sample one = { .acked = 1, .cwnd_limited = 1 };

static struct cc connection(u32 cwnd, u32 ssthresh)
{
	return (struct cc){
		.cwnd = cwnd,
		.ssthresh = ssthresh,
		.cwnd_most = CC_CWND_MOST,
		.mss = 1448,
		.config = CC_CONFIG_DEFAULT,
	};
}

static void doubles_in_slow_start(void)
{
	struct NAME state = { 0 };
	struct cc cc = connection(10, CC_SSTHRESH_INFINITE);

	for (int packet = 0; packet < 10; packet++)
		NAME_grow(&state, &cc, &one);
	CHECK(cc.cwnd == 20);
}

static void grows_by_a_packet_in_a_round(void)
{
	struct NAME state = { 0 };
	struct cc cc = connection(100, 50);

	for (int packet = 0; packet < 100; packet++)
		NAME_grow(&state, &cc, &one);
	CHECK(cc.cwnd == 101);
}

static void a_loss_takes_a_quarter(void)
{
	struct NAME state = { 0 };
	struct cc cc = connection(100, 50);

	CHECK(NAME_ssthresh(&state, &cc) == 75);
	cc.cwnd = 75;
	CHECK(NAME_undo(&state, &cc) == 100);
}

int main(void)
{
	doubles_in_slow_start();
	grows_by_a_packet_in_a_round();
	a_loss_takes_a_quarter();
	if (!failed)
		printf("NAME: all holds\n");
	return failed;
}
