#!/bin/bash
# Prepares what a read-only image cannot hold, and becomes the command. `executor` and `driver` are the words with
# which Spark starts pods.
set -eu

# an older processor would end the first kernel by SIGILL, without a word
if ! /lib64/ld-linux-x86-64.so.2 --help | grep -q "^ *$NUMBA_CPU_NAME (supported"; then
    echo "error: this image is for processors of $NUMBA_CPU_NAME and newer: build one with CPU=..." >&2
    exit 78
fi
# numba uses no cache in which it cannot write
if [ -d /opt/card-fraud/cache ]; then
    mkdir -p "$XDG_CACHE_HOME"
    cp -R --no-clobber /opt/card-fraud/cache/. "$XDG_CACHE_HOME"
fi
case "$1" in
executor)
    # as the entrypoint of Spark's own images; PySpark does not include it
    readarray -t options < <(env | grep '^SPARK_JAVA_OPT_' | sort -t_ -k4 -n | sed 's/^[^=]*=//')
    set -- java "${options[@]}" -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_CLASSPATH:-}:$SPARK_HOME/jars/*" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
driver)
    shift
    set -- "$SPARK_HOME/bin/spark-submit" --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
        --deploy-mode client "$@"
    ;;
esac
exec "$@"
