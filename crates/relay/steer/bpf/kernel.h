/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The few fields of kernel structures that are read, found by their names when the program is
 * loaded (CO-RE), and constants that no header of user space has. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

#define AF_INET 2
#define AF_INET6 10
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define ETH_P_8021Q 0x8100
#define ETH_P_8021AD 0x88a8
#define PACKET_HOST 0
#define EEXIST 17
#define CLOCK_MONOTONIC 1
#define IPPROTO_ICMP 1
#define IPPROTO_TCP 6
#define IPPROTO_ICMPV6 58

/* The packet goes on: to the next program, or up the stack. TCX_NEXT and TC_ACT_UNSPEC agree. */
#define GO_ON -1
/* It does not. TCX_DROP and TC_ACT_SHOT agree. */
#define DROP 2

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

struct request_sock_queue {
	atomic_t qlen;
};

struct sock {
	__u32 sk_ack_backlog;
	__u32 sk_max_ack_backlog;
};

struct inet_sock {
	struct sock sk;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	struct request_sock_queue icsk_accept_queue;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
};

struct tcp_request_sock {
	__u32 snt_isn;
};

struct inet_timewait_sock {
	__u32 tw_mark;
};

struct tcp_timewait_sock {
	struct inet_timewait_sock tw_sk;
};

#pragma clang attribute pop
