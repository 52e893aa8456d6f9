/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Initial windows: the kernel has no option for them, but lets BPF set them (TCP_BPF_IW), as long as a connection has
 * sent nothing. At getsockname(2) in a control group, which is rarely called for another reason (accept(2) asks for the
 * peer's name): at setsockopt(2), which could carry the number, a program costs each call of every socket there. */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

#include "first_window.h"

#define SOL_TCP 6
/* The call goes on. */
#define ALLOWED 1

/* By socket: how many packets it is to begin with; then what became of that. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} first_windows SEC(".maps");

static __always_inline int set_first_window(struct bpf_sock_addr *ctx)
{
	__u32 *wanted = ctx->sk ? bpf_sk_storage_get(&first_windows, ctx->sk, NULL, 0) : NULL;
	__u32 packets;

	if (!wanted)
		return ALLOWED;
	packets = *wanted;
	if (packets > MOST_FIRST_WINDOW)
		return ALLOWED;
	*wanted = bpf_setsockopt(ctx, SOL_TCP, TCP_BPF_IW, &packets, sizeof(packets)) ? FIRST_WINDOW_REFUSED
										      : FIRST_WINDOW_SET;
	return ALLOWED;
}

SEC("cgroup/getsockname4")
int set_first_window4(struct bpf_sock_addr *ctx)
{
	return set_first_window(ctx);
}

SEC("cgroup/getsockname6")
int set_first_window6(struct bpf_sock_addr *ctx)
{
	return set_first_window(ctx);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
