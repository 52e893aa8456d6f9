/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Holes in what clients send are kept from them where they fill by themselves: by acknowledgements of their legs that
 * do not go, or say less (`reordering.h` decides). What is known of a connection is kept with its socket, and goes with
 * it. */
#pragma once

#include "decide.h"
#include "leg.h"

/* Where packets go that nobody is to see: no link has this index. A sender whose packet is dropped takes it for a sign
 * of congestion (`tcp_enter_cwr`), one whose packet is sent elsewhere does not. */
#define NOWHERE 0x7fffffff

/* Of TCP, with options (RFC 9293, 3.1). */
#define LONGEST_HEADER 60

enum { OPTION_END, OPTION_NOTHING, OPTION_SACK = 5, OPTION_TIMESTAMPS = 8 };

/* Finds an option in a TCP header's options, from `offset` up to `end`, in bytes from the network header: where it
 * begins, or 0. Verified by itself. */
__noinline int find_option(struct __sk_buff *skb, __u32 offset, __u32 end, __u32 kind)
{
	for (int i = 0; i < OPTIONS; i++) {
		__u8 option[2];

		if (offset + sizeof(option) > end || !load(skb, offset, option, sizeof(option)))
			return 0;
		if (option[0] == kind)
			return offset;
		if (option[0] == OPTION_END || (option[0] != OPTION_NOTHING && option[1] < sizeof(option)))
			return 0;
		offset += option[0] == OPTION_NOTHING ? 1 : option[1];
	}
	return 0;
}

/* Whether the packet that comes in has a timestamp, which it has in `stamp` then. Verified by itself, and so without what
 * was read of it, which it finds: no other memory can be a key for all kernels. */
__noinline int has_stamp(struct __sk_buff *skb)
{
	struct packet *packet = last_read(IN);
	__u32 at, end;
	__be32 stamp;

	if (!packet)
		return false;
	end = packet->end - packet->payload;
	at = find_option(skb, packet->transport + sizeof(struct tcp), end, OPTION_TIMESTAMPS);
	if (!at || !load(skb, at + 2, &stamp, sizeof(stamp)))
		return false;
	packet->stamp = bpf_ntohl(stamp);
	return true;
}

/* A client's data has come out of order to its leg's socket, when all before it ended at `highest`. Verified by itself, as
 * above. */
__noinline int notice(struct __sk_buff *skb, __u32 highest)
{
	struct packet *packet = last_read(IN);
	struct lateness *lateness, *network;
	struct bpf_sock *socket, *full;
	struct upload *upload;
	__u64 now;

	if (!packet)
		return 0;
	packet->client = subscriber(packet);
	packet->network = network_of(&packet->client);
	__builtin_memset(&packet->unknown, 0, sizeof(packet->unknown));
	network = bpf_map_lookup_elem(&lateness_in, &packet->network);
	if (!network) {
		bpf_map_update_elem(&lateness_in, &packet->network, &packet->unknown, BPF_NOEXIST);
		network = bpf_map_lookup_elem(&lateness_in, &packet->network);
	}
	lateness = bpf_map_lookup_elem(&lateness_of, &packet->client);
	if (network && !lateness) {
		lateness_begin(&packet->unknown, network);
		bpf_map_update_elem(&lateness_of, &packet->client, &packet->unknown, BPF_NOEXIST);
		lateness = bpf_map_lookup_elem(&lateness_of, &packet->client);
	}
	if (!network || !lateness)
		return 0;
	socket = find_socket(skb, packet);
	if (!socket)
		return 0;
	full = bpf_sk_fullsock(socket);
	upload = full ? bpf_sk_storage_get(&uploads, full, 0, BPF_SK_STORAGE_GET_F_CREATE) : NULL;
	if (upload) {
		now = bpf_ktime_get_ns();
		bpf_spin_lock(&upload->lock);
		holes_came(&upload->holes, lateness, network, packet->sequence, packet->sequence + packet->payload,
			   highest, packet->stamp, now / NSEC_PER_USEC);
		bpf_spin_unlock(&upload->lock);
	}
	bpf_sk_release(socket);
	return 0;
}

/* Whether the packet acknowledges without data. */
static __noinline bool only_tells(struct __sk_buff *skb, struct layout *layout, struct acknowledgement *ack)
{
	__u32 length, end;
	struct tcp tcp;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct ipv4 ip;

		if (!load(skb, 0, &ip, sizeof(ip)) || ip.protocol != IPPROTO_TCP)
			return false;
		layout->transport = (ip.version_ihl & 15) * 4;
		length = bpf_ntohs(ip.length);
		layout->version = 4;
		layout->client = mapped(ip.destination);
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		/* Only what is needed of the header: the stack is small. */
		struct {
			__be16 length;
			__u8 next;
			__u8 hop_limit;
		} ip;

		if (!load(skb, offsetof(struct ipv6, length), &ip, sizeof(ip)) || ip.next != IPPROTO_TCP ||
		    !load(skb, offsetof(struct ipv6, destination), &layout->client, sizeof(layout->client)))
			return false;
		layout->transport = sizeof(struct ipv6);
		length = sizeof(struct ipv6) + bpf_ntohs(ip.length);
		layout->version = 6;
		layout->client = subscriber_at(layout->client, 6);
	} else {
		return false;
	}
	if (!load(skb, layout->transport, &tcp, sizeof(tcp)))
		return false;
	end = layout->transport + (tcp.offset >> 4) * 4;
	if (tcp.flags != TCP_ACK || end != length || skb->len < length)
		return false;
	layout->end = end;
	layout->link = skb->len - length;
	layout->sack = find_option(skb, layout->transport + sizeof(tcp), end, OPTION_SACK);
	ack->number = bpf_ntohl(tcp.acknowledgement);
	ack->window = bpf_ntohs(tcp.window);
	for (int i = 0; layout->sack && i < SACK_BLOCKS; i++) {
		__u32 at = layout->sack + 2 + i * 8;
		__be32 block[2];

		if (at + sizeof(block) > end || !load(skb, at, block, sizeof(block)))
			break;
		ack->left[i] = bpf_ntohl(block[0]);
		ack->right[i] = bpf_ntohl(block[1]);
		ack->blocks = i + 1;
	}
	return true;
}

/* What an option of one block takes, in whole words: two bytes of nothing come before it. */
#define ONE_BLOCK 12

/* Makes room for an option of SACK with one block, behind all others. */
static __always_inline bool make_room(struct __sk_buff *skb, struct layout *layout)
{
	__u32 at_length = layout->link + (layout->version == 4 ? 2 : 4), transport = layout->link + layout->transport;
	__u32 segment = layout->end - layout->transport;
	__u8 nothing[2] = { OPTION_NOTHING, OPTION_NOTHING }, offset;
	__be16 before, after;

	if (segment + ONE_BLOCK > LONGEST_HEADER || bpf_skb_change_tail(skb, skb->len + ONE_BLOCK, 0))
		return false;
	if (bpf_skb_load_bytes(skb, at_length, &before, sizeof(before)) ||
	    bpf_skb_load_bytes(skb, transport + 12, &offset, sizeof(offset)))
		return false;
	after = bpf_htons(bpf_ntohs(before) + ONE_BLOCK);
	offset += ONE_BLOCK / 4 << 4;
	if (layout->version == 4 && bpf_l3_csum_replace(skb, layout->link + 10, before, after, sizeof(after)))
		return false;
	/* All that there is of it yet is the sum of what comes before the header, its length among it. */
	if (bpf_l4_csum_replace(skb, transport + 16, bpf_htons(segment), bpf_htons(segment + ONE_BLOCK),
				BPF_F_PSEUDO_HDR | sizeof(after)))
		return false;
	if (bpf_skb_store_bytes(skb, at_length, &after, sizeof(after), 0) ||
	    bpf_skb_store_bytes(skb, transport + 12, &offset, sizeof(offset), 0) ||
	    bpf_skb_store_bytes(skb, layout->link + layout->end, nothing, sizeof(nothing), 0))
		return false;
	layout->sack = layout->end + sizeof(nothing);
	return true;
}

/* Writes the blocks that are left into an acknowledgement. Its checksum is still to be made. */
static __always_inline bool rewrite(struct __sk_buff *skb, const struct layout *layout,
				    const struct acknowledgement *ack)
{
	__u8 head[2] = { ack->told ? OPTION_SACK : OPTION_NOTHING,
			 ack->told ? 2 + ack->told * 8 : OPTION_NOTHING };
	__u32 at = layout->link + layout->sack;
	/* What is left out comes behind. */
	__u32 told = at + sizeof(head), nothing = told + ack->told * 8;

	if (bpf_skb_store_bytes(skb, at, head, sizeof(head), 0))
		return false;
	for (int i = 0; i < SACK_BLOCKS; i++) {
		__be32 block[2] = { bpf_htonl(0x01010101), bpf_htonl(0x01010101) };
		__u32 place = nothing;

		if (i >= ack->blocks)
			break;
		if (ack->left[i] != ack->right[i]) {
			block[0] = bpf_htonl(ack->left[i]);
			block[1] = bpf_htonl(ack->right[i]);
			place = told;
			told += sizeof(block);
		} else {
			nothing += sizeof(block);
		}
		if (bpf_skb_store_bytes(skb, place, block, sizeof(block), 0))
			return false;
	}
	return true;
}

/* Writes the blocks that are left into an acknowledgement, with room for one if it had none. */
static __noinline bool rewrite_all(struct __sk_buff *skb, struct layout *layout, const struct acknowledgement *ack)
{
	__u32 end = layout->end;

	if (!layout->sack && make_room(skb, layout))
		layout->end = end + ONE_BLOCK;
	return layout->sack && rewrite(skb, layout, ack);
}

/* What is to become of an acknowledgement of the upload. All goes where nothing is known of its client any more. */
static __noinline enum telling decide_telling(struct upload *upload, const struct layout *layout, __u32 longest_us,
						   struct acknowledgement *ack)
{
	struct lateness *lateness = bpf_map_lookup_elem(&lateness_of, &layout->client);
	__u32 now = bpf_ktime_get_ns() / NSEC_PER_USEC;
	enum telling telling;

	if (!lateness) {
		upload->holes.kept = 0;
		return TELL;
	}
	bpf_spin_lock(&upload->lock);
	telling = holes_tell(&upload->holes, min32(lateness->hold_us, longest_us), lateness->judged, ack,
			     now);
	bpf_spin_unlock(&upload->lock);
	return telling;
}

/* Gives an acknowledgement that is due to user space, if it is not being written just now; then it is not due yet. */
static __always_inline void submit(struct reminder *reminder)
{
	__u32 written = __sync_fetch_and_add(&reminder->written, 0);
	struct kept_ack *due = bpf_ringbuf_reserve(&due_reminders, sizeof(*due), 0);

	if (!due)
		return;
	*due = reminder->ack;
	if (written & 1 || __sync_fetch_and_add(&reminder->written, 0) != written)
		bpf_ringbuf_discard(due, 0);
	else
		bpf_ringbuf_submit(due, 0);
}

/* The timer has rung. A program cannot send a packet here: user space does. */
static int remind(void *map __attribute__((unused)), __u64 *cookie __attribute__((unused)), struct reminder *reminder)
{
	__u64 now = bpf_ktime_get_ns(), due;

	__sync_lock_test_and_set(&reminder->is_set, 0);
	due = reminder->due_ns;
	if (!due)
		return 0;
	if (now < due) {
		if (!__sync_lock_test_and_set(&reminder->is_set, 1))
			bpf_timer_start(&reminder->timer, due - now, 0);
		return 0;
	}
	/* Who changes it meanwhile sets the timer. */
	if (__sync_val_compare_and_swap(&reminder->due_ns, due, 0) == due)
		submit(reminder);
	return 0;
}

/* Has the upload's reminder go when more may be told, if nothing has told it until then. */
static __always_inline void set_reminder(struct upload *upload, struct reminder *reminder)
{
	__u64 now = bpf_ktime_get_ns(), wait;
	__u32 wait_us = upload->holes.due_us - (__u32)(now / NSEC_PER_USEC);

	/* It is due by now. */
	if (wait_us > HOLD_MOST)
		wait_us = 0;
	wait = (__u64)wait_us * NSEC_PER_USEC;

	upload->reminds = 1;
	reminder->due_ns = now + wait;
	/* One that rings too early is set again. */
	if (!__sync_lock_test_and_set(&reminder->is_set, 1))
		bpf_timer_start(&reminder->timer, wait, 0);
}

/* The upload's reminder, if it has one. */
static __always_inline struct reminder *reminder_of(struct upload *upload)
{
	__u64 cookie = upload->cookie;

	return cookie ? bpf_map_lookup_elem(&reminders, &cookie) : NULL;
}

static __always_inline void forget_reminder(struct upload *upload)
{
	struct reminder *reminder = upload->reminds ? reminder_of(upload) : NULL;

	upload->reminds = 0;
	if (reminder)
		reminder->due_ns = 0;
}

/* Keeps an acknowledgement as it is, to go again: its socket's upload has a reminder then. Verified by itself. */
__noinline int keep(struct __sk_buff *skb, __u32 link, __u32 transport)
{
	__u64 cookie = bpf_get_socket_cookie(skb);
	struct reminder *reminder = bpf_map_lookup_elem(&reminders, &cookie);
	__u32 length = skb->len;
	/* One less, as verifiers bound a size from below only by adding to it (Linux 6.1). */
	__u64 size = length - 1;
	bool kept;

	if (!length || length > LONGEST_ACK)
		return false;
	if (!reminder) {
		struct packet *packet = last_read(OUT);

		_Static_assert(sizeof(*reminder) <= sizeof(packet->blank), "there is not enough of it");
		if (!packet)
			return false;
		bpf_map_update_elem(&reminders, &cookie, packet->blank, BPF_NOEXIST);
		reminder = bpf_map_lookup_elem(&reminders, &cookie);
		if (!reminder)
			return false;
		bpf_timer_init(&reminder->timer, &reminders, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&reminder->timer, remind);
	}
	__sync_fetch_and_add(&reminder->written, 1);
	reminder->ack.length = length;
	reminder->ack.network = link;
	reminder->ack.transport = link + transport;
	/* As in `copy_syn`. */
	asm volatile("" : "+r"(size));
	size &= LONGEST_ACK;
	kept = !bpf_skb_load_bytes(skb, 0, reminder->ack.frame, size + 1);
	__sync_fetch_and_add(&reminder->written, 1);
	return kept;
}

/* Whether a packet on its way out is not to go. Verified by itself. */
__noinline int keeps_back(struct __sk_buff *skb, __u32 longest_us)
{
	struct acknowledgement ack = {};
	struct layout layout = {};
	struct reminder *reminder;
	struct bpf_sock *socket;
	struct upload *upload;
	enum telling telling;

	socket = skb->sk;
	socket = socket ? bpf_sk_fullsock(socket) : NULL;
	upload = socket ? bpf_sk_storage_get(&uploads, socket, 0, 0) : NULL;
	if (!upload || !only_tells(skb, &layout, &ack))
		return false;
	if (!ack.blocks && upload->holes.twice_left == upload->holes.twice_right) {
		forget_reminder(upload);
		return false;
	}
	telling = decide_telling(upload, &layout, longest_us, &ack);
	if (!upload->holes.kept) {
		forget_reminder(upload);
	} else if (keep(skb, layout.link, layout.transport)) {
		upload->cookie = bpf_get_socket_cookie(skb);
		upload->interface = skb->ifindex;
		reminder = reminder_of(upload);
		if (reminder)
			set_reminder(upload, reminder);
	}
	if (telling == TELL_NOT) {
		count(KEPT_BACK);
		return true;
	}
	if (telling != TELL && rewrite_all(skb, &layout, &ack) && telling == TELL_LESS)
		count(TOLD_LESS);
	return false;
}

/* What the bytes of a TCP header sum up to, without its checksum. Verified by itself. */
__noinline int sum_of_header(struct __sk_buff *skb, __u32 at, __u32 length)
{
	__u8 header[LONGEST_HEADER + 4] = {};
	__u64 size = length - 1;

	if (!length || length > LONGEST_HEADER)
		return 0;
	/* As in `copy_syn`. */
	asm volatile("" : "+r"(size));
	size &= sizeof(header) - 1;
	if (bpf_skb_load_bytes(skb, at, header, size + 1))
		return 0;
	header[16] = header[17] = 0;
	return bpf_csum_diff(NULL, 0, (__be32 *)header, sizeof(header), 0);
}

/* The upload whose leg has sent a packet that comes back, if it has one. */
static __always_inline struct upload *sender_upload(struct __sk_buff *skb, struct packet *packet)
{
	struct bpf_sock *socket = find_sender(skb, packet), *full;
	struct upload *upload;

	if (!socket)
		return NULL;
	full = bpf_sk_fullsock(socket);
	upload = full ? bpf_sk_storage_get(&uploads, full, 0, 0) : NULL;
	bpf_sk_release(socket);
	return upload;
}

/* An acknowledgement that was kept has come back: an `enum telling` of what it may tell now, TELL_NOT if something has told that
 * since. Verified by itself, as `send_again`, as the stack is small. */
__noinline int tells_again(struct __sk_buff *skb, __u32 longest_us)
{
	struct packet *packet = last_read(IN);
	struct reminder *reminder;
	struct upload *upload;
	enum telling telling;

	upload = packet && packet->kind == TCP ? sender_upload(skb, packet) : NULL;
	if (!upload || !upload->reminds)
		return TELL_NOT;
	__builtin_memset(&packet->ack, 0, sizeof(packet->ack));
	/* What is kept now was while this one was on its way. */
	if (!only_tells(skb, &packet->layout, &packet->ack) ||
	    precedes(packet->ack.number, upload->holes.acknowledged))
		return TELL_NOT;
	upload->reminds = 0;
	packet->layout.interface = upload->interface;
	telling = decide_telling(upload, &packet->layout, longest_us, &packet->ack);
	reminder = upload->holes.kept ? reminder_of(upload) : NULL;
	if (reminder)
		set_reminder(upload, reminder);
	return telling;
}

/* Sends it where it was to go: as it is if it is to tell all. Its checksum is made already, and is right again when this is
 * done. */
__noinline int send_again(struct __sk_buff *skb, __u32 telling)
{
	struct packet *packet = last_read(IN);
	__u32 before, after, at;

	if (!packet || telling == TELL_NOT)
		return DROP;
	if (telling != TELL) {
		at = packet->layout.link + packet->layout.transport;
		before = sum_of_header(skb, at, packet->layout.end - packet->layout.transport);
		if (!rewrite_all(skb, &packet->layout, &packet->ack))
			return DROP;
		after = sum_of_header(skb, at, packet->layout.end - packet->layout.transport);
		if (bpf_l4_csum_replace(skb, at + 16, before, after, sizeof(after)))
			return DROP;
	}
	count(TOLD_LATER);
	return bpf_redirect(packet->layout.interface, 0);
}
