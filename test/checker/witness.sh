# The same as cmd/witness for jobs that are a shell script: source it first. It needs flock, date and awk, and WITNESS_DIR.
#
#	. witness.sh; …the job…
#
# The lock on descriptor 9 is inherited by every process of the job, and held until the last of them is gone.
witness_say() {
	(
		flock 8
		up=$(awk '{printf "%d", $1 * 1000 + 0.5}' /proc/uptime)
		boot=$(cut -c1-8 /proc/sys/kernel/random/boot_id)
		echo "$(date +%s%3N) $1 $CAPRI_TASK $CAPRI_BATCH_NO $CAPRI_RUN_NO $CAPRI_ATTEMPT ${CAPRI_NODE:--} $$ $boot/$up" >&8
	) 8>>"$WITNESS_DIR/witness.log" 9>&-
}
mkdir -p "$WITNESS_DIR/locks"
exec 9>"$WITNESS_DIR/locks/$(printf %s "$CAPRI_TASK@$CAPRI_BATCH_NO" | tr / _)"
flock -n 9 || witness_say overlap
trap 'witness_say end' EXIT
trap 'exit 143' TERM
witness_say start
