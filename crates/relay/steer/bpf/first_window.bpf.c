/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Initial windows: the kernel has no option for them, but lets BPF set them (TCP_BPF_IW), as long as a connection has
 * sent nothing. At setsockopt(2) in a control group. */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

#include "first_window.h"

#define SOL_TCP 6
/* What the kernel shows of a longer value is a page. */
#define SHOWN 4096

/* What this answers becomes of the call: 0 is EPERM, 1 is as it would be without the program, unless `optlen` is -1: the
 * call is done. */
enum { REFUSED, ALLOWED };
#define DONE -1

SEC("cgroup/setsockopt")
int set_first_window(struct bpf_sockopt *ctx)
{
	__u32 *value = ctx->optval;
	__u32 packets;

	if (ctx->level != FIRST_WINDOW_LEVEL || ctx->optname != FIRST_WINDOW) {
		/* The value as it was given: else calls with a longer one fail. */
		if (ctx->optlen > SHOWN)
			ctx->optlen = 0;
		return ALLOWED;
	}
	if ((void *)(value + 1) > ctx->optval_end)
		return REFUSED;
	packets = *value;
	if (bpf_setsockopt(ctx->sk, SOL_TCP, TCP_BPF_IW, &packets, sizeof(packets)))
		return REFUSED;
	ctx->optlen = DONE;
	return ALLOWED;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
